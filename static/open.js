// A page that shows what an agent keeps leaves the screen when the access ends, wherever it was
// ended, and nothing remains in the back/forward cache.
"use strict";

(() => {
  const LOOK_EVERY_MS = 5000;
  const grant = document.querySelector("[data-open-until]");
  const empty = () => document.querySelectorAll("[data-open]").forEach((each) => each.remove());
  const leave = () => {
    empty();
    location.replace(grant.dataset.over);
  };

  // remove content before the page enters the back/forward cache, and reload it from there
  addEventListener("pagehide", empty);
  addEventListener("pageshow", (event) => {
    if (event.persisted) location.reload();
  });
  if (!grant) return;

  // performance.now() ignores sleep and clock changes
  const until = performance.now() + 1000 * Number(grant.dataset.openUntil);
  const isOver = async () => {
    if (performance.now() > until) return true;
    const answer = await fetch(grant.dataset.state, { redirect: "manual" });
    if (answer.status >= 500) return false;
    const text = await answer.text();
    return !answer.ok || !text.includes('data-access="granted"');
  };
  const look = () => isOver().then((over) => over && leave(), () => {});
  setInterval(look, LOOK_EVERY_MS);
  document.addEventListener("visibilitychange", look);
})();
