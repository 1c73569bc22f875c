// Pages change in place: forms and lists by what the reader does, and pages by themselves, so that
// they stay true. htmx asks for the whole page and takes its main part over. This file says when
// not to ask, refuses what is not a page of ours, keeps what is in the reader's hands, and tells.
"use strict";

(() => {
  const byId = (id) => document.getElementById(id);
  const alert = byId("alert");
  const isRefresh = (ctx) => ctx.sourceElement.id === "main";

  let isStale = false;
  const couldNot = (ctx, why) => {
    if (isRefresh(ctx) && !alert.hidden && !isStale) return; // something worse stands there
    isStale = isRefresh(ctx);
    alert.textContent = isStale
      ? `Not refreshed since ${byId("main").dataset.asOf} (${why}).`
      : `No answer (${why}). The request may not have been carried out: reload the page to check.`;
    alert.hidden = false;
  };
  const couldAgain = (ctx) => {
    if (isStale || !isRefresh(ctx)) alert.hidden = true;
  };

  // -- when to ask, and when not -----------------------------------------------------------------

  const SLOW_DOWN_AFTER_MS = 120_000; // from then on, a page asks every ten seconds at most
  const opened = Date.now();
  let asked = opened;
  let paused = new URLSearchParams(location.search).get("live") === "0";
  const isTooSoon = () => Date.now() - opened > SLOW_DOWN_AFTER_MS && Date.now() - asked < 9_000;
  const refresh = () => htmx.trigger("#main", "again");

  const showPause = () => {
    const button = byId("pause");
    if (!button) return;
    button.hidden = false;
    button.textContent = paused ? "Resume updates" : "Pause updates";
  };
  document.addEventListener("click", (event) => {
    if (event.target.id !== "pause") return;
    paused = !paused;
    showPause();
    refresh();
  });
  document.addEventListener("visibilitychange", refresh);
  addEventListener("pageshow", (event) => {
    if (!event.persisted) return;
    byId("main").removeAttribute("aria-busy");
    refresh();
  });
  addEventListener("online", refresh);

  document.addEventListener("htmx:config:request", (event) => {
    const { ctx } = event.detail;
    if (!isRefresh(ctx)) return dropEmptyFields(ctx.request);
    const isByClock = ctx.sourceEvent.type === "every";
    if (paused || document.hidden || (isByClock && isTooSoon())) return event.preventDefault();
    asked = Date.now();
    ctx.request.headers["If-None-Match"] = `"${byId("main").dataset.version}"`;
  });
  const dropEmptyFields = ({ method, body }) => {
    if (method !== "GET") return;
    for (const [name, value] of [...body]) if (!value) body.delete(name);
  };

  // -- what may take the page's place ------------------------------------------------------------

  const NOTHING_NEW = 304;
  document.addEventListener("htmx:before:response", (event) => {
    const { ctx } = event.detail;
    const { status, headers } = ctx.response;
    const isOurs = headers.has("Refine-Page");
    if (isOurs && status < (isRefresh(ctx) ? 300 : 500)) return;
    event.preventDefault();
    if (isOurs && status === NOTHING_NEW) {
      couldAgain(ctx);
      byId("main").dataset.asOf = headers.get("Refine-As-Of");
      sayAsOf("As of");
    } else {
      const isError = isOurs || status >= 400;
      couldNot(ctx, isError ? `HTTP ${status}` : "the answer did not come from Refine");
    }
  });
  document.addEventListener("htmx:error", (event) => {
    if (event.detail.ctx) couldNot(event.detail.ctx, "no connection");
  });

  // -- nothing moves under the reader's hand -----------------------------------------------------

  const IN_USE = ":is(a, button:enabled, label, summary):not(#fresh *):hover,"
    + ":is(input, select, textarea):focus";
  let movedAt = -Infinity;
  // A pointer, or a field's focus, that has rested for two rounds was left there.
  const wasLeft = (main) => {
    const seconds = parseInt(main.getAttribute("hx-trigger").replace("every ", ""), 10);
    return performance.now() - movedAt > 2_000 * seconds;
  };
  const move = () => { movedAt = performance.now(); };
  ["pointermove", "pointerdown", "keydown"].forEach((each) => addEventListener(each, move));

  const isSelecting = (main) => {
    const selected = getSelection();
    return !selected.isCollapsed && main.contains(selected.anchorNode);
  };
  const isInHand = (main) => isSelecting(main) || isChanged(main)
    || main.querySelector("details[open]")
    || (!wasLeft(main) && main.querySelector(IN_USE));
  const isChanged = (part) => [...part.querySelectorAll("input, textarea")].some((each) =>
    each.value !== each.defaultValue || each.checked !== each.defaultChecked)
    || [...part.querySelectorAll("select")].some(({ options, selectedIndex }) =>
      selectedIndex !== Math.max(0, [...options].findIndex((each) => each.defaultSelected)));

  let afterwards = () => {};
  document.addEventListener("htmx:before:swap", (event) => {
    const { ctx, tasks } = event.detail;
    const main = byId("main");
    // the reader was signed out, or somebody else signed in: leave with the whole page
    const { user } = byId("notices").dataset;
    if (!tasks.some(({ fragment }) => fragment.querySelector(`#notices[data-user="${user}"]`))) {
      event.preventDefault();
      return location.reload();
    }
    if (isRefresh(ctx) && isInHand(main)) {
      tasks.splice(tasks.findIndex(({ type }) => type === "main"), 1);
      return sayAsOf("Something changed since");
    }
    afterwards = keepingFocus(ctx, main, keepingPlace(ctx));
    rememberActions(ctx, tasks);
  });
  document.addEventListener("htmx:before:settle", (event) => {
    if (event.target === byId("main")) afterwards();
  });
  const keepingPlace = (ctx) => {
    const pointed = [...document.querySelectorAll("#main :hover")].at(-1);
    const before = pointed?.getBoundingClientRect().top;
    // a morphed link may lead elsewhere now: then another one leads where it did
    const { href, text } = pointed?.closest("a") ?? {};
    return () => {
      const same = [...document.links].find((each) => each.href === href && each.text === text) ?? pointed;
      if (!same?.isConnected || ctx.swap.includes("show:top")) return;
      scrollBy(0, same.getBoundingClientRect().top - before);
    };
  };
  // What had the focus may be gone: then what follows it has it, but no button, which would act.
  const keepingFocus = (ctx, main, first) => {
    const focused = document.activeElement;
    const following = [...main.querySelectorAll("a[href], input, select, textarea, summary")]
      .filter((each) => focused.compareDocumentPosition(each) & Node.DOCUMENT_POSITION_FOLLOWING);
    const wasInside = focused !== main && main.contains(focused);
    return () => {
      first();
      if (isRefresh(ctx) || !wasInside || focused.isConnected) return;
      (following.find((each) => each.isConnected) ?? main).focus({ preventScroll: true });
    };
  };

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

  const rememberActions = (ctx, tasks) => {
    placesBefore = new Map(actions(document).map((form) => [form.id + says(form), placeOf(form)]));
    changedAt = performance.now();
    for (const { fragment } of tasks) {
      keepEnded(fragment, isRefresh(ctx));
      keepDrawn(fragment, ctx.sourceElement);
    }
  };
  // A form that somebody fills in stays as it was drawn, with its version, until they send it.
  const keepDrawn = (fragment, sent) => {
    for (const form of document.querySelectorAll("form.stack:has([name=drawn_from])")) {
      if (form === sent || !(isChanged(form) || form.contains(document.activeElement))) continue;
      fragment.getElementById(form.id)?.replaceWith(form.cloneNode(true));
    }
  };
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

  const sayAsOf = (how) => {
    byId("as-of").textContent = `${how} ${byId("main").dataset.asOf}.`;
    byId("fresh").classList.toggle("held", how !== "As of");
  };

  let awaited;
  document.addEventListener("htmx:before:request", ({ detail: { ctx } }) => {
    if (isRefresh(ctx)) return;
    awaited = ctx;
    byId("main").setAttribute("aria-busy", "true");
  });
  document.addEventListener("htmx:finally:request", ({ detail: { ctx } }) => {
    if (ctx !== awaited || ctx.hx?.redirect) return; // the page is being left
    byId("main").removeAttribute("aria-busy");
  });

  let wasFresh = Boolean(byId("fresh"));
  document.addEventListener("htmx:after:swap", (event) => {
    const { ctx } = event.detail;
    couldAgain(ctx);
    showPause();
    showIcon(byId("notices").dataset.icon);
    const isFresh = Boolean(byId("fresh"));
    const state = byId("state");
    if (wasFresh && !isFresh && state) sayItEnded(ctx.title, state.getBoundingClientRect());
    wasFresh = isFresh;
    if (!isRefresh(ctx)) document.querySelector("main [role=alert][tabindex]")?.focus();
  });
  const sayItEnded = (title, { top, bottom }) => {
    const message = document.createElement("p");
    message.className = "message over";
    message.textContent = title.replace(/ · Refine$/, "");
    // who sees the state itself needs nothing laid over the page
    message.classList.toggle("hidden", bottom > 0 && top < innerHeight);
    byId("messages").append(message);
    showIcon(byId("icon").dataset.ended);
  };
  const showIcon = (url) => { // browsers load what is set, though it was there before
    if (byId("icon").getAttribute("href") !== url) byId("icon").href = url;
  };
  // The style says when a message fades.
  document.addEventListener("animationend", ({ target }) => {
    if (target.matches(".message")) target.remove();
  });

  showPause();
})();
