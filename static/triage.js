// Ticks of lists are kept over pages and refreshes, until they were acted upon; and lists are worked
// through by key: see KEYS in refine/web/words.py.
"use strict";

(() => {
  const form = () => document.querySelector("form[data-ticks]");
  const boxes = () => [...document.querySelectorAll("main input[name=agent][type=checkbox]")];

  // -- ticks ---------------------------------------------------------------------------------------

  const PREFIX = "ticks ";
  const place = () => PREFIX + [form().dataset.ticks, form().id, location.pathname].join(" ");
  const kept = () => new Set(JSON.parse(sessionStorage.getItem(place())));
  const forget = () => Object.keys(sessionStorage).filter((each) => each.startsWith(PREFIX))
    .forEach((each) => sessionStorage.removeItem(each));

  const remember = () => {
    const ids = kept();
    for (const { value, checked } of boxes()) ids[checked ? "add" : "delete"](value);
    sessionStorage.setItem(place(), JSON.stringify([...ids]));
    show();
  };
  const show = () => {
    if (!form()) return;
    const ids = kept();
    for (const box of boxes()) {
      box.checked = ids.has(box.value);
      ids.delete(box.value);
    }
    form().querySelectorAll("[data-elsewhere]").forEach((each) => each.remove());
    for (const value of ids) {
      const hidden = Object.assign(document.createElement("input"), { type: "hidden", name: "agent", value });
      hidden.dataset.elsewhere = "";
      form().append(hidden);
    }
    const elsewhere = ids.size ? `, ${ids.size} of them on other pages` : "";
    form().querySelector("[data-count]").textContent = `${kept().size} selected${elsewhere}`;
    form().querySelector("[data-keys]").hidden = false;
  };
  document.addEventListener("change", ({ target }) => {
    if (boxes().includes(target)) remember();
  });
  document.addEventListener("submit", ({ submitter }) => {
    if (submitter?.matches("[data-done]")) forget();
  });
  document.addEventListener("htmx:after:swap", show);
  addEventListener("pageshow", show);

  // -- keys ----------------------------------------------------------------------------------------

  const current = () => boxes().find((box) => box.closest("li, tr").contains(document.activeElement));
  const go = (step) => {
    const all = boxes();
    const next = current() ? all.indexOf(current()) + step : 0;
    all[Math.max(0, Math.min(next, all.length - 1))]?.focus();
  };
  const act = (work) => {
    if (!kept().size) current()?.click();
    if (kept().size) form().requestSubmit(form().querySelector(`[value=${work}]`));
  };
  const showKeys = () => document.getElementById("keys").showModal();
  const KEYS = {
    j: () => go(1),
    k: () => go(-1),
    x: () => current()?.click(),
    e: () => act("acknowledge"),
    z: () => act("snooze"),
    "?": showKeys,
  };
  const TYPING = "input:not([type=checkbox]), select, textarea";
  document.addEventListener("keydown", (event) => {
    const { key, target } = event;
    const isElsewhere = !form() || target.matches(TYPING) || document.querySelector("dialog[open]");
    const isTooSoon = "ez".includes(key) && (event.repeat || document.querySelector("main[aria-busy]"));
    if (!KEYS[key] || isElsewhere || isTooSoon || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    KEYS[key]();
  });
  document.addEventListener("click", ({ target }) => {
    if (target.matches("[data-keys]")) showKeys();
  });
})();
