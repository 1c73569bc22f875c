// Pages change in place: forms and lists by what the reader does, and pages that show something
// running by themselves. htmx asks for the whole page and takes its main part over. This file says
// when not to ask, refuses what is not a page of ours, and tells the reader.
"use strict";

(() => {
  const byId = (id) => document.getElementById(id);
  const alert = byId("alert");
  const isRefresh = (ctx) => ctx.sourceElement.id === "main";

  const tell = (text) => {
    alert.textContent = text;
    alert.hidden = false;
  };
  const couldNot = (ctx, why) => {
    tell(isRefresh(ctx)
      ? `Could not refresh (${why}). Showing data from ${byId("main").dataset.asOf}.`
      : `No answer (${why}). The request may not have been carried out: reload the page to check.`);
  };

  // -- when not to ask ---------------------------------------------------------------------------

  const SLOW_DOWN_AFTER_MS = 120_000; // from then on, a page asks every ten seconds at most
  const opened = Date.now();
  let asked = opened;
  let paused = new URLSearchParams(location.search).get("live") === "0";
  const isTooSoon = () => Date.now() - opened > SLOW_DOWN_AFTER_MS && Date.now() - asked < 9_000;

  const showPause = () => {
    const button = byId("pause");
    if (!button) return;
    button.hidden = false;
    button.textContent = paused ? "Resume updates" : "Pause updates";
  };
  document.addEventListener("click", (event) => {
    if (event.target.id !== "pause") return;
    paused = !paused;
    asked = 0;
    showPause();
  });

  document.addEventListener("htmx:config:request", (event) => {
    const { ctx } = event.detail;
    if (!isRefresh(ctx)) return dropEmptyFields(ctx.request);
    if (paused || document.hidden || isTooSoon()) event.preventDefault();
    else asked = Date.now();
  });
  const dropEmptyFields = ({ method, body }) => {
    if (method !== "GET") return;
    for (const [name, value] of [...body]) if (!value) body.delete(name);
  };

  // -- what may take the page's place ------------------------------------------------------------

  document.addEventListener("htmx:before:response", (event) => {
    const { ctx } = event.detail;
    const { status, headers } = ctx.response;
    const isOurs = headers.has("Refine-Page");
    if (isOurs && status < (isRefresh(ctx) ? 400 : 500)) return;
    event.preventDefault();
    couldNot(ctx, isOurs || status >= 400 ? `HTTP ${status}` : "the answer did not come from Refine");
  });
  document.addEventListener("htmx:error", (event) => {
    if (event.detail.ctx) couldNot(event.detail.ctx, "no connection");
  });

  // -- an action never takes another's place -----------------------------------------------------

  const TOO_SOON_TO_SEE_MS = 500; // a click so soon was meant for what was there before
  const actions = (page) => [...page.querySelectorAll("form[method=post][id]")];
  const says = (form) => form.querySelector("button")?.textContent;
  const placeOf = (form) => { // on the page, which may be scrolled
    const { x, y, width, height } = form.getBoundingClientRect();
    return new DOMRect(x + scrollX, y + scrollY, width, height);
  };
  let placesBefore = new Map();
  let changedAt = -Infinity;

  document.addEventListener("htmx:before:swap", (event) => {
    const { ctx, tasks } = event.detail;
    placesBefore = new Map(actions(document).map((form) => [form.id + says(form), placeOf(form)]));
    changedAt = performance.now();
    for (const { fragment } of tasks) {
      keepEnded(fragment, isRefresh(ctx));
      keepDrawn(fragment, ctx.sourceElement);
    }
  });
  // A form that somebody fills in stays as it was drawn, with its version, until they send it.
  const keepDrawn = (fragment, sent) => {
    for (const form of document.querySelectorAll("form.stack:has([name=drawn_from])")) {
      if (form === sent || !isFilledIn(form)) continue;
      fragment.getElementById(form.id)?.replaceWith(form.cloneNode(true));
    }
  };
  const isFilledIn = (form) => form.contains(document.activeElement)
    || [...form.querySelectorAll("input")].some((each) =>
      each.value !== each.defaultValue || each.checked !== each.defaultChecked);
  // One that has ended stays, disabled, until the page is left; so does one that a refresh turned
  // into its opposite.
  const keepEnded = (fragment, isByItself) => {
    const group = fragment.querySelector("#actions");
    for (const form of group ? actions(byId("actions") ?? fragment) : []) {
      const now = fragment.getElementById(form.id);
      if (now && (!isByItself || says(now) === says(form))) continue;
      if (now) now.id += "#now";
      const ended = form.cloneNode(true);
      ended.querySelector("button").disabled = true;
      group.insertBefore(ended, group.children[[...form.parentElement.children].indexOf(form)]);
    }
  };
  document.addEventListener("click", (event) => {
    const form = event.target.closest("form[method=post][id] button")?.form;
    const isByHand = event.detail > 0; // keys have no place
    if (!form || !isByHand || performance.now() - changedAt > TOO_SOON_TO_SEE_MS) return;
    const key = form.id + says(form);
    const wasAnother = [...placesBefore].some(([other, place]) => other !== key
      && place.left <= event.pageX && event.pageX <= place.right
      && place.top <= event.pageY && event.pageY <= place.bottom);
    if (placesBefore.has(key) && !wasAnother) return; // it has only moved
    event.preventDefault();
    event.stopPropagation();
  }, true);

  // -- what the reader is told -------------------------------------------------------------------

  let wasFresh = Boolean(byId("fresh"));
  document.addEventListener("htmx:after:swap", (event) => {
    const { ctx } = event.detail;
    alert.hidden = true;
    showPause();
    const isFresh = Boolean(byId("fresh"));
    if (wasFresh && !isFresh) sayItEnded(ctx.title);
    wasFresh = isFresh;
    if (!isRefresh(ctx)) document.querySelector("main [role=alert][tabindex]")?.focus();
  });
  const sayItEnded = (title) => {
    const message = document.createElement("p");
    message.className = "message over";
    message.textContent = title.replace(/ · Refine$/, "");
    byId("messages").append(message);
    byId("icon").href = byId("icon").dataset.ended;
  };

  showPause();
})();
