// Asks for what changed every two seconds while the page is looked at; what did not change is answered by 304.

import { t } from "./plot.js";

const PAUSE = 2000;

// `ask` says whether the daemon answered; `say` shows how it is. What is returned asks at once.
export function live(ask, say) {
  let timer = null;
  let turn = 0;
  async function beat() {
    const own = ++turn;
    clearTimeout(timer);
    if (document.hidden) return say(t("paused"), true);
    const answered = await ask();
    if (own !== turn) return;
    say(answered ? t("live") : t("disconnected: data may be stale"), answered);
    timer = setTimeout(beat, PAUSE);
  }
  document.addEventListener("visibilitychange", beat);
  beat();
  return beat;
}
