// Runs before anything is drawn, so that a page that was switched to dark does not flash in white.
(() => {
  try {
    const chosen = localStorage.getItem("oxiray-theme");
    if (chosen === "dark" || chosen === "light") document.documentElement.dataset.theme = chosen;
  } catch {
    // A browser that keeps nothing shows what its reader prefers in general.
  }
})();
