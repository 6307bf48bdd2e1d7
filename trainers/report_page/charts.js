const SVG = "http://www.w3.org/2000/svg";
const COLOURS = ["--c0", "--c1", "--c2", "--c3", "--c4", "--c5"];
const isNumber = (value) => typeof value === "number" && Number.isFinite(value);

function element(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}
function shape(tag, attributes) {
  const node = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  return node;
}
function short(value, unit = "") {
  if (!isNumber(value)) return "–";
  if (unit === "%") return `${(100 * value).toFixed(Math.abs(value) < 0.1 && value !== 0 ? 1 : 0)} %`;
  const size = Math.abs(value);
  const text = size === 0 ? "0" : size >= 1e5 || size < 1e-3 ? value.toExponential(1) : size >= 100 ? value.toFixed(0) : size >= 10 ? value.toFixed(1) : value.toFixed(size >= 1 ? 2 : 3);
  return unit ? `${text} ${unit}` : text;
}
function niceTicks(low, high, log) {
  if (log) {
    const ticks = [];
    for (let power = Math.ceil(Math.log10(low)); power <= Math.log10(high) + 1e-9; power++) ticks.push(10 ** power);
    return ticks.length > 1 ? ticks : [low, high];
  }
  const raw = (high - low) / 4 || 1;
  const size = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].find((factor) => factor * size >= raw) * size;
  const ticks = [];
  for (let tick = Math.ceil(low / step) * step; tick <= high + step * 1e-6; tick += step) ticks.push(Math.abs(tick) < step * 1e-6 ? 0 : tick);
  return ticks;
}

// series: [{name, points: [{x, y, low?, high?, mark?}], dots?}]
function lineChart({ title, about, series, unit = "", xLabel = "iteration", floor = null, ceiling = null, canLog = false, least = 0, id = "" }) {
  const figure = element("figure", { class: "chart" });
  if (id) figure.id = id;
  const caption = element("figcaption", {}, element("span", { title: about }, title));
  figure.append(caption, element("p", {}, about));
  const shown = series.map((one, index) => ({ ...one, colour: `var(${one.colour ?? COLOURS[index % COLOURS.length]})`, points: one.points.filter((point) => isNumber(point.y)) }));
  const all = shown.flatMap((one) => one.points);
  if (!all.length) { figure.append(element("p", {}, "– nothing was recorded")); return figure; }
  const legend = element("div", { class: "legend" });
  for (const one of shown) { const key = element("i"); key.style.background = one.colour; legend.append(element("span", {}, key, one.name)); }
  const holder = element("div");
  let log = false;
  const draw = () => holder.replaceChildren(drawLines(shown, all, { unit, xLabel, floor, ceiling, log, least, figure }));
  if (canLog && all.some((point) => point.y > 0)) {
    const button = element("button", { type: "button" }, "log scale");
    button.addEventListener("click", () => { log = !log; button.textContent = log ? "linear scale" : "log scale"; draw(); });
    caption.append(button);
  }
  figure.append(holder, legend);
  draw();
  return figure;
}
function drawLines(shown, all, { unit, xLabel, floor, ceiling, log, least, figure }) {
  const width = 420, height = 230, left = 52, right = 12, top = 12, bottom = 34;
  const xs = all.map((point) => point.x);
  const values = all.flatMap((point) => [point.y, point.low, point.high]).filter(isNumber).filter((value) => !log || value > 0);
  const x0 = Math.min(...xs), x1 = Math.max(...xs);
  let y0 = log ? Math.min(...values) : floor ?? Math.min(...values), y1 = ceiling ?? Math.max(...values);
  if (least) { y0 = Math.min(y0, -least); y1 = Math.max(y1, least); } // so that rounding does not look like a signal
  if (y0 === y1) { y1 = y0 + (Math.abs(y0) || 1) * 0.5; if (!log && floor === null) y0 -= (Math.abs(y0) || 1) * 0.5; }
  const toX = (x) => left + ((x - x0) / (x1 - x0 || 1)) * (width - left - right);
  const scale = (y) => (log ? (Math.log(Math.max(y, y0)) - Math.log(y0)) / (Math.log(y1) - Math.log(y0)) : (y - y0) / (y1 - y0));
  const toY = (y) => height - bottom - scale(y) * (height - top - bottom);
  const svg = shape("svg", { viewBox: `0 0 ${width} ${height}`, role: "img" });
  const label = (text, attributes) => { const node = shape("text", { class: "tick", ...attributes }); node.textContent = text; svg.append(node); };
  for (const tick of niceTicks(y0, y1, log)) {
    svg.append(shape("line", { class: "axis", x1: left, x2: width - right, y1: toY(tick), y2: toY(tick) }));
    label(short(tick, unit === "%" ? "%" : ""), { x: left - 6, y: toY(tick) + 4, "text-anchor": "end" });
  }
  const steps = niceTicks(x0, x1, false).filter(Number.isInteger);
  for (const tick of steps.length ? steps : [x0]) label(String(tick), { x: toX(tick), y: height - bottom + 16, "text-anchor": "middle" });
  label(unit && unit !== "%" ? `${xLabel} · ${unit}` : xLabel, { x: width - right, y: height - 4, "text-anchor": "end" });
  for (const one of shown) {
    const path = one.points.map((point, index) => `${index ? "L" : "M"}${toX(point.x).toFixed(1)},${toY(point.y).toFixed(1)}`).join("");
    if (!one.dots || one.joined) svg.append(shape("path", { d: path, fill: "none", stroke: one.colour, "stroke-width": one.dots ? 1 : 1.8, "stroke-linejoin": "round", opacity: one.faint ? 0.45 : 1 }));
    for (const point of one.points) {
      if (isNumber(point.low)) svg.append(shape("line", { x1: toX(point.x), x2: toX(point.x), y1: toY(point.low), y2: toY(point.high), stroke: one.colour, "stroke-width": 1.6 }));
      if (one.dots || point.mark || one.points.length === 1) svg.append(shape("circle", { cx: toX(point.x), cy: toY(point.y), r: point.mark ? 4.5 : 3.2, fill: point.mark ? "none" : one.colour, stroke: point.mark ? "var(--bad)" : "none", "stroke-width": 1.8 }));
    }
  }
  hover(svg, figure, shown, toX, xLabel, unit, width);
  return svg;
}
function hover(svg, figure, shown, toX, xLabel, unit, width) {
  let tip = null;
  const leave = () => { tip?.remove(); tip = null; };
  svg.addEventListener("pointermove", (event) => {
    const box = svg.getBoundingClientRect();
    const at = ((event.clientX - box.left) / box.width) * width;
    const points = shown.flatMap((one) => one.points);
    const nearest = points.reduce((best, point) => (Math.abs(toX(point.x) - at) < Math.abs(toX(best.x) - at) ? point : best));
    const lines = [`${xLabel} ${nearest.x}`];
    for (const one of shown) for (const point of one.points) if (point.x === nearest.x) {
      const range = isNumber(point.low) ? ` (${short(point.low, unit)} to ${short(point.high, unit)})` : "";
      lines.push(`${one.name}  ${short(point.y, unit)}${range}${point.mark ? `  ${point.mark}` : ""}`);
    }
    leave();
    tip = element("div", { class: "tip" }, lines.join("\n"));
    figure.append(tip);
    const frame = figure.getBoundingClientRect();
    tip.style.left = `${Math.min(event.clientX - frame.left + 14, frame.width - tip.offsetWidth - 6)}px`;
    tip.style.top = `${event.clientY - frame.top + 14}px`;
  });
  svg.addEventListener("pointerleave", leave);
}
function barChart({ title, about, bars, unit = "", colour = "--c0" }) {
  const width = 420, height = 190, left = 40, bottom = 30, top = 10;
  const figure = element("figure", { class: "chart" }, element("figcaption", {}, title), element("p", {}, about));
  const most = Math.max(...bars.map((bar) => bar.value), 1e-12);
  const svg = shape("svg", { viewBox: `0 0 ${width} ${height}`, role: "img" });
  const step = (width - left - 8) / bars.length;
  for (const tick of niceTicks(0, most, false)) {
    const y = height - bottom - (tick / most) * (height - top - bottom);
    svg.append(shape("line", { class: "axis", x1: left, x2: width - 8, y1: y, y2: y }));
    const text = shape("text", { class: "tick", x: left - 5, y: y + 4, "text-anchor": "end" }); text.textContent = short(tick, unit); svg.append(text);
  }
  bars.forEach((bar, index) => {
    const tall = (bar.value / most) * (height - top - bottom);
    const rectangle = shape("rect", { x: left + index * step + 1, width: Math.max(1, step - 2), y: height - bottom - tall, height: tall, fill: `var(${bar.colour ?? colour})`, rx: 1.5 });
    const hint = shape("title", {}); hint.textContent = `${bar.name}: ${short(bar.value, unit)}`; rectangle.append(hint);
    svg.append(rectangle);
    if (bar.label !== "") { const text = shape("text", { class: "tick", x: left + (index + 0.5) * step, y: height - bottom + 15, "text-anchor": "middle" }); text.textContent = bar.label ?? bar.name; svg.append(text); }
  });
  figure.append(svg);
  return figure;
}
