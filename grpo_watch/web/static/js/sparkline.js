// A sparkline: the course of one metric over the whole run, its newest value, and its range when pointed at.
import { el, svg } from "./dom.js";
import { number, t } from "./plot.js";

const SIZE = 63; // the greatest number of a sparkline, across and up

export function sparkline(name, words, spark) {
  if (!spark)
    return el(
      "div",
      { class: "spark", title: `${words}: ${t("not logged")}` },
      el("span", { class: "what" }, name),
      el("b", { class: "none" }, "–"),
    );
  const points = spark.x.map((x, place) => `${x},${SIZE - spark.y[place]}`).join(" ");
  const range = `${words}: ${t("{low} to {high}, now {last}", { low: number(spark.low), high: number(spark.high), last: number(spark.last) })} (${spark.metric})`;
  const end = spark.x.length - 1;
  return el(
    "div",
    { class: "spark", title: range },
    el("span", { class: "what" }, name),
    el("b", {}, number(Number(spark.last.toPrecision(3)))),
    svg(
      "svg",
      { viewBox: `-2 -3 ${SIZE + 4} ${SIZE + 6}`, preserveAspectRatio: "none", role: "img", "aria-label": range },
      svg("polyline", { points, class: spark.low === spark.high ? "flat" : null, "vector-effect": "non-scaling-stroke" }),
      end === 0 && svg("circle", { cx: spark.x[0], cy: SIZE - spark.y[0], r: 3 }),
    ),
  );
}
