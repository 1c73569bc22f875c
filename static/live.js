// A live page refreshes by htmx. This file pauses polling on request and in hidden tabs, slows it for
// long runs, and shows connection errors.
"use strict";

(() => {
  const alert = document.getElementById("alert");
  let paused = new URLSearchParams(location.search).get("live") === "0";
  let fresh = new Date();
  const opened = Date.now();
  let asked = opened;
  const SLOW_DOWN_AFTER_MS = 120_000; // then a page asks every ten seconds instead of two
  const isTooSoon = () => Date.now() - opened > SLOW_DOWN_AFTER_MS && Date.now() - asked < 9_000;

  const button = () => document.getElementById("pause");
  const show = () => {
    const found = button();
    if (!found) return;
    found.hidden = false;
    found.textContent = paused ? "Resume updates" : "Pause updates";
  };

  document.addEventListener("click", (event) => {
    if (event.target.id !== "pause") return;
    paused = !paused;
    asked = 0;
    show();
  });

  document.addEventListener("htmx:config:request", (event) => {
    if (paused || document.hidden || isTooSoon()) event.preventDefault();
    else asked = Date.now();
  });

  document.addEventListener("htmx:after:swap", (event) => {
    if (event.detail.ctx.response.status >= 400) return; // nothing was swapped
    fresh = new Date();
    alert.hidden = true;
    show();
  });

  const stale = (why) => {
    alert.textContent = `Could not refresh (${why}). Showing data from ${fresh.toLocaleTimeString()}.`;
    alert.hidden = false;
  };
  document.addEventListener("htmx:error", () => stale("no connection"));
  document.addEventListener("htmx:response:error", (event) => {
    stale(`HTTP ${event.detail.ctx.response.status}`);
  });

  show();
})();
