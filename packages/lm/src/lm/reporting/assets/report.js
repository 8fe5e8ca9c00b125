"use strict";
// Reads the curves out under the pointer, in all charts at once. The page says everything it has to say without this.
const counted = JSON.parse(document.getElementById("counted").textContent);
const charts = [...document.querySelectorAll(".chart")].map((figure) => ({
  figure,
  panes: [...figure.querySelectorAll(".pane")],
  output: figure.querySelector("output"),
  data: JSON.parse(figure.querySelector("script").textContent),
  drawn: [],
})).filter((chart) => chart.data.lines.length);

const raised = "⁻⁰¹²³⁴⁵⁶⁷⁸⁹";
const superscript = (digits) => digits.replace(/[-0-9]/g, (d) => raised["-0123456789".indexOf(d)]);
function number(value) {
  const size = Math.abs(value);
  if (size && size < 0.001) {
    const [mantissa, power] = value.toExponential(2).split("e");
    return `${Number(mantissa)} × 10${superscript(power)}`;
  }
  return value.toLocaleString("en", size >= 1000 ? { maximumFractionDigits: 0 } : { maximumSignificantDigits: 4 });
}
function short(value) {
  const [size, unit] = [[1e12, " T"], [1e9, " G"], [1e6, " M"], [1e4, " k"], [0, ""]].find(([least]) => value >= least);
  return number(value / (unit === " k" ? 1e3 : size || 1)) + unit;
}
function duration(seconds) {
  if (seconds < 100) return `${number(Number(seconds.toPrecision(3)))} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 100) return `${minutes} min ${Math.round(seconds % 60)} s`;
  return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}
function nearest(xs, x) {
  let low = 0, high = xs.length - 1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (xs[middle] <= x) low = middle; else high = middle;
  }
  return xs[high] - x < x - xs[low] ? high : low;
}
function add(parent, tag, className, words) {
  const element = document.createElement(tag);
  if (className) element.className = className;
  if (words !== undefined) element.textContent = words;
  return parent.appendChild(element);
}
function share([low, high], log, value) {
  return log ? Math.log(value / low) / Math.log(high / low) : (value - low) / (high - low);
}
function clear() {
  for (const chart of charts) {
    chart.drawn.forEach((element) => element.remove());
    chart.drawn = [];
    chart.output.textContent = "";
  }
}
function titleOf(chart) {
  return chart.figure.querySelector("figcaption b").textContent;
}
function show(active, x) {
  clear();
  for (const chart of charts) {
    const { data, panes, output } = chart;
    if (data.xName !== active.data.xName) continue;
    const [low, high] = data.x, left = 100 * share(data.x, data.logX, x);
    for (const pane of panes) {
      const cross = add(pane, "i", "cross");
      cross.style.left = `${left}%`;
      chart.drawn.push(cross);
    }
    let tips = [];
    if (chart === active) {
      tips = panes.map((pane) => add(pane, "div", "tip"));
      chart.drawn.push(...tips);
      for (const tip of tips) {
        tip.style[left < 50 ? "left" : "right"] = `calc(${left < 50 ? left : 100 - left}% + 14px)`;
        const where = add(tip, "p");
        add(where, "span", "", `${data.xName} ${data.xName === "step" ? number(Math.round(x)) : short(x)}`);
        if (counted.step && counted.step.length && data.xName === "step") {
          const i = nearest(counted.step, x);
          add(where, "span", "", `${short(counted.tokens[i])} tokens · ${duration(counted.seconds[i])}`);
        }
      }
    }
    for (const line of data.lines) {
      // A line says nothing before its first point and after its last. Between points that are far apart, as of
      // held-out text, its read-out names the point that it is of.
      const i = nearest(line.x, x), up = share(data.y, data.log, line.y[i]);
      const away = Math.abs(share(data.x, data.logX, line.x[i]) - share(data.x, data.logX, x)) > 1 / 50;
      if (away && (x < line.x[0] || x > line.x[line.x.length - 1])) continue;
      const point = data.xName === "step" ? number(Math.round(line.x[i])) : short(line.x[i]);
      for (const pane of up >= 0 && up <= 1 ? panes : []) {
        const dot = add(pane, "i", `dot ${line.colour}`);
        dot.style.left = `${100 * share(data.x, data.logX, line.x[i])}%`;
        dot.style.top = `${100 * (1 - up)}%`;
        chart.drawn.push(dot);
      }
      for (const tip of tips) {
        const row = add(tip, "p", line.colour);
        const name = line.name || titleOf(chart).toLowerCase();
        add(row, "span", "", away ? `${name}, ${data.xName} ${point}` : name);
        add(row, "b", "", number(line.y[i]));
      }
      if (!tips.length && data.lines.length === 1) add(output, "b", "", number(line.y[i]));
    }
  }
}
for (const chart of charts) {
  const [low, high] = chart.data.x, { logX } = chart.data;
  const at = (part) => (logX ? low * (high / low) ** part : low + part * (high - low));
  const clamp = (x) => Math.min(Math.max(x, low), high);
  let x = high;
  for (const pane of chart.panes) {
    pane.tabIndex = 0;
    // A slider over the x axis: the arrow keys move it, and a screen reader says its text.
    const attributes = { role: "slider", "aria-label": titleOf(chart), "aria-valuemin": low, "aria-valuemax": high };
    for (const [name, value] of Object.entries(attributes)) pane.setAttribute(name, value);
    pane.setAttribute("aria-valuenow", x);
    pane.addEventListener("pointermove", (event) => {
      const box = pane.getBoundingClientRect();
      show(chart, x = clamp(at((event.clientX - box.left) / box.width)));
    });
    pane.addEventListener("pointerleave", clear);
    pane.addEventListener("blur", clear);
    pane.addEventListener("keydown", (event) => {
      const turn = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (!turn) return;
      event.preventDefault();
      show(chart, x = clamp(at(share([low, high], logX, x) + turn / 100)));
      const rows = [...pane.querySelectorAll(".tip p")];
      const words = rows.map((row) => [...row.children].map((part) => part.textContent).join(" "));
      pane.setAttribute("aria-valuenow", x);
      pane.setAttribute("aria-valuetext", words.join(", "));
    });
  }
}
