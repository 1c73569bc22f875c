// Plays the picture of a session edit by edit, at a pace that can be followed. Without it, and for
// who prefers no motion, the picture simply shows the end.
"use strict";

(() => {
  const PACE_MS = 1500;
  const APPEARING_MS = 600;
  const prefersNone = matchMedia("(prefers-reduced-motion: reduce)");
  const button = () => document.querySelector("[data-film]");

  const framesOf = (each) => {
    if (each.matches(".caption")) return [{ opacity: 0 }, { opacity: 1, offset: .1 }, { opacity: 1, offset: .95 }, { opacity: 0 }];
    if (each.matches(".bars:first-child path")) return [{ fill: "var(--edge)", stroke: "var(--page)" }, {}];
    return [{ opacity: 0 }, {}];
  };
  const play = async (figure) => {
    const shown = [...figure.querySelectorAll("[data-step]")];
    const last = Math.max(...shown.map((each) => Number(each.dataset.step) || 0)) + 1;
    button().textContent = "Show the end";
    const animations = shown.map((each) => each.animate(framesOf(each), {
      delay: PACE_MS * (Number(each.dataset.step) || last),
      duration: each.matches(".caption") ? PACE_MS : APPEARING_MS,
      fill: "backwards",
    }));
    await Promise.allSettled(animations.map((each) => each.finished));
    if (button()) button().textContent = "Replay";
  };
  const stop = (playing) => playing.forEach((each) => each.cancel());

  const offer = () => {
    if (button() && !prefersNone.matches) button().hidden = false;
  };
  document.addEventListener("click", ({ target }) => {
    if (!target.matches("[data-film]")) return;
    const figure = target.closest("figure");
    const playing = figure.getAnimations({ subtree: true });
    if (playing.length) stop(playing);
    else play(figure);
  });
  document.addEventListener("htmx:after:swap", offer);
  offer();
  // by itself only the first time that somebody looks
  const seen = `film ${location.pathname}`;
  if (button() && !button().hidden && !document.getElementById("fresh") && !sessionStorage.getItem(seen)) {
    sessionStorage.setItem(seen, "seen");
    play(button().closest("figure"));
  }
})();
