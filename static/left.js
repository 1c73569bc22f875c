// Counts down how long the reader may still read, and warns before the end: once when five minutes
// are left, and once when one is.
"use strict";

(() => {
  const WARN_AT_MINUTES = [5, 1];
  const warned = new Map();

  const words = (minutes) => `${minutes} ${minutes === 1 ? "minute" : "minutes"} left.`;

  // performance.now() ignores changes of the clock; what the page says was right when it came
  const begin = () => document.querySelectorAll("[data-left]").forEach((grant) => {
    if (grant.begunWith === grant.dataset.left) return; // not asked for anew
    grant.begunWith = grant.dataset.left;
    const seconds = Number(grant.dataset.left);
    grant.until = performance.now() + 1000 * seconds;
    if (!warned.has(grant.ariaLabel)) {
      // half a minute late is in time, for who opened another page just then
      const passed = WARN_AT_MINUTES.filter((minutes) => seconds < 60 * minutes - 30);
      warned.set(grant.ariaLabel, new Set(passed));
    }
  });

  const show = () => document.querySelectorAll("[data-left]").forEach((grant) => {
    const minutes = Math.max(0, Math.ceil((grant.until - performance.now()) / 60_000));
    grant.querySelector(".left").textContent = words(minutes);
    grant.classList.toggle("ending", minutes <= WARN_AT_MINUTES[0]);
    const told = warned.get(grant.ariaLabel);
    const due = WARN_AT_MINUTES.filter((each) => minutes <= each && !told.has(each));
    if (!due.length) return;
    due.forEach((each) => told.add(each));
    grant.querySelector("[role=status]").textContent = `${grant.ariaLabel}: ${words(minutes)}`;
  });

  const start = () => { begin(); show(); };
  start();
  setInterval(show, 1000);
  document.addEventListener("htmx:after:swap", start);
})();
