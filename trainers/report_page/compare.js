const { arms } = JSON.parse(document.getElementById("data").textContent);
document.title = "Runs compared";
const range = ([mean, low, high]) => `${short(mean, "%")} (${short(low, "%")} to ${short(high, "%")})`;
const best = arms.reduce((first, arm) => (arm.final[0] > first.final[0] ? arm : first));
document.getElementById("verdict").textContent = `${best.name} ends highest with ${range(best.final)} over ${best.seeds.length} seed${best.seeds.length === 1 ? "" : "s"}.`;
document.getElementById("charts").append(
  lineChart({ title: "Held-out success", about: "mean over seeds; bars are 95 % intervals over seeds", unit: "%", floor: 0, ceiling: 1, series: arms.map((arm) => ({ name: arm.name, dots: true, joined: true, points: arm.curve.map(([x, y, low, high]) => ({ x, y, low, high })) })) }));
const agentIds = [...new Set(arms.flatMap((arm) => Object.keys(arm.grad_norms)))];
const titles = ["runs", "seeds", "final success", "gain", "RL seconds", ...agentIds.flatMap((agentId) => [`${agentId} |g| mean / max`, `${agentId} tokens/iteration`])];
const table = element("table", {}, element("tr", {}, ...titles.map((name) => element("th", {}, name))));
for (const arm of arms) {
  const byAgent = agentIds.flatMap((agentId) => [(arm.grad_norms[agentId] ?? []).map((value) => short(value)).join(" / "), short(arm.tokens[agentId])]);
  table.append(element("tr", {}, ...[arm.name, arm.seeds.join(", "), range(arm.final), range(arm.gain), short(arm.seconds), ...byAgent].map((value) => element("td", {}, value))));
}
document.getElementById("table").append(table);
document.body.dataset.ready = "true";
