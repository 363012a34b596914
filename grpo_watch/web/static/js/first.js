// Before anything is drawn: the theme that was chosen here last.
try {
  const chosen = localStorage.getItem("grpo-watch-theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
} catch {
  // storage is switched off: the system's theme it is
}
