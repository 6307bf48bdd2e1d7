const DATA = JSON.parse(document.getElementById("data").textContent);
const byId = (id) => document.getElementById(id);
const { iterations, evaluations, transcripts, settings } = DATA;
const agentIds = [...new Set(iterations.flatMap((record) => Object.keys(record.agents ?? {})))];
const colourOf = (agentId) => COLOURS[Math.max(0, agentIds.indexOf(agentId)) % COLOURS.length];
const last = iterations.at(-1), lastEvaluation = evaluations.at(-1);

function header() {
  const estimator = settings.algorithm?.estimator ?? "–";
  byId("crumb").textContent = [settings.env?.id, estimator, `seed ${settings.seed ?? "–"}`, `${iterations.length} iterations`].filter(Boolean).join("  ·  ");
  byId("title").textContent = document.title = DATA.title;
  byId("verdict").textContent = DATA.verdict;
  const seconds = iterations.reduce((sum, record) => sum + (record.seconds?.total ?? 0), 0);
  const skipped = iterations.reduce((sum, record) => sum + Object.values(record.policies ?? {}).reduce((some, policy) => some + (policy.skipped_updates ?? 0), 0), 0);
  const lost = iterations.reduce((sum, record) => sum + (record.lost_rollouts ?? 0) + (record.truncated_rollouts ?? 0), 0);
  const rollouts = iterations.reduce((sum, record) => sum + (record.num_rollouts ?? 0), 0);
  const tiles = [
    [short(lastEvaluation?.avg_at_k, "%"), "held-out success", "Mean success over held-out tasks at the last evaluation"],
    [short(last?.success, "%"), "training success", "Share of the last iteration's rollouts that solved their task"],
    [String(rollouts), "rollouts", "Episodes played for training"],
    [short(seconds, "s"), "RL time", "Wall time of all iterations, evaluation not included"],
    [String(skipped), "skipped updates", "Updates left out because loss or gradient was not finite"],
    [String(lost), "truncated or lost", "Rollouts that a limit or a failure ended"],
  ];
  for (const [value, name, about] of tiles) byId("tiles").append(element("div", { class: "tile", title: about }, element("b", {}, value), element("span", {}, name)));
  const charts = { reward_collapse: "learning", never_called: "chart-turns", no_entropy: "chart-entropy", gradient_spike: "chart-grad", not_finite: "chart-grad", invalid_actions: "chart-valid", unearned_term: "agents", no_signal: "chart-zero", lost_rollouts: "transcripts" };
  const seen = new Map();
  for (const record of iterations) for (const alarm of record.alarms ?? []) {
    const key = `${alarm.agent_id}/${alarm.name}`;
    if (!seen.has(key)) seen.set(key, { alarm, at: [] });
    seen.get(key).at.push(record.iteration);
  }
  for (const { alarm, at } of seen.values()) {
    const times = at.length > 1 ? `, ${at.length} times` : "";
    byId("alarms").append(element("div", { class: "alarm" }, element("b", {}, `${alarm.agent_id}: ${alarm.name.replaceAll("_", " ")} `), `from iteration ${at[0]}${times}. ${alarm.message} `, element("a", { href: `#${charts[alarm.name] ?? "agents"}` }, "see")));
  }
}

const perAgent = (key, mark = () => null) => agentIds.map((agentId) => ({ name: agentId, colour: colourOf(agentId), points: iterations.map((record) => ({ x: record.iteration, y: record.agents?.[agentId]?.[key], mark: mark(record, agentId) })) }));

function curves() {
  byId("learning-charts").append(
    lineChart({ title: "Success", about: "share of episodes that solved their task; bars are 95 % intervals", unit: "%", floor: 0, ceiling: 1, series: [
      { name: "held out", colour: "--c1", dots: true, joined: true, points: evaluations.map((record) => ({ x: record.iteration, y: record.avg_at_k, low: record.interval?.[0], high: record.interval?.[1] })) },
      { name: "training", colour: "--c0", faint: true, points: iterations.map((record) => ({ x: record.iteration, y: record.success })) }] }),
    lineChart({ title: "Return", about: "mean sum of rewards per episode, penalties included", series: perAgent("return_mean") }));
  const spike = (record, agentId) => (record.alarms ?? []).some((alarm) => alarm.agent_id === agentId && alarm.name === "gradient_spike") ? "spike" : Object.values(record.policies ?? {}).some((policy) => policy.skipped_updates) ? "skipped" : (record.agents?.[agentId]?.grad_norm_max ?? 0) > 5 ? "over 5" : null;
  byId("agent-charts").append(
    lineChart({ id: "chart-grad", title: "Gradient norm", about: "of each agent's own gradient, before clipping; circles mark spikes, norms over 5 and skipped updates", canLog: true, series: perAgent("grad_norm", spike) }),
    lineChart({ title: "Mean advantage", least: 0.1, about: "far from 0 means: everything this agent says counts as bad, or as good", series: perAgent("advantage_mean") }),
    lineChart({ title: "RMS advantage", about: "root mean square; the gradient norm follows it", floor: 0, series: perAgent("advantage_rms") }),
    lineChart({ title: "Predicted inflation", about: "factor by which team-wide normalisation inflates the agent's gradient (Dr. MAS, lemma); 1 is none", canLog: true, series: perAgent("inflation") }),
    lineChart({ id: "chart-zero", title: "Turns without signal", about: "share of turns whose advantage is exactly 0", unit: "%", floor: 0, ceiling: 1, series: perAgent("zero_advantage_frac") }),
    lineChart({ id: "chart-valid", title: "Valid actions", about: "share of turns in the right format", unit: "%", floor: 0, ceiling: 1, series: perAgent("valid_frac") }),
    lineChart({ id: "chart-turns", title: "Turns per episode", about: "how often the team calls each agent", floor: 0, series: perAgent("turns_per_episode") }),
    lineChart({ id: "chart-entropy", title: "Entropy", about: "nats per token, as sampled; near 0 the agent explores no more", floor: 0, series: perAgent("entropy") }),
    lineChart({ title: "Clipped tokens", about: "share of tokens at which the clip range decided", unit: "%", floor: 0, series: perAgent("clip_frac") }),
    lineChart({ title: "KL of the update", about: "mean old less new log-probability, nats per token", series: perAgent("approx_kl") }),
    lineChart({ title: "Engine gap", about: "mean difference between the engine's and the learner's log-probability, nats; a rise means stale weights", canLog: true, series: perAgent("engine_gap") }));
}

function histograms() {
  const having = iterations.filter((record) => agentIds.some((agentId) => record.agents[agentId]?.advantage_histogram));
  if (!having.length) return;
  const slider = byId("histogram-slider");
  slider.max = having.length - 1; slider.value = having.length - 1;
  const draw = () => {
    const record = having[Number(slider.value)];
    byId("histogram-at").textContent = record.iteration;
    byId("histograms").replaceChildren(...agentIds.filter((agentId) => record.agents[agentId]?.advantage_histogram).map((agentId) => {
      const { edges, counts } = record.agents[agentId].advantage_histogram;
      const bars = counts.map((count, index) => ({ name: Math.abs(edges[index]) < 1e-6 && Math.abs(edges[index + 1]) < 1e-6 ? "exactly 0" : `${short(edges[index])} to ${short(edges[index + 1])}`, value: count, label: index % 3 === 1 ? short((edges[index] + edges[index + 1]) / 2) : "" }));
      return barChart({ title: agentId, about: `turns by advantage; ${record.agents[agentId].num_turns} turns`, bars, colour: colourOf(agentId) });
    }));
  };
  slider.addEventListener("input", draw);
  draw();
}

function cost() {
  const phases = ["rollout", "update"];
  byId("cost-charts").append(
    lineChart({ title: "Time per iteration", about: "wall time of collecting rollouts and of updating", unit: "s", floor: 0, series: phases.map((phase) => ({ name: phase, points: iterations.map((record) => ({ x: record.iteration, y: record.seconds?.[phase] })) })) }),
    lineChart({ title: "Tokens written", about: "completion tokens per iteration", floor: 0, series: perAgent("completion_tokens") }));
  const sum = (agentId, key) => iterations.reduce((total, record) => total + (record.agents?.[agentId]?.[key] ?? 0), 0);
  const table = element("table", {}, element("tr", {}, ...["agent", "policy", "turns", "prompt tokens", "completion tokens", "seconds waiting", "cost at last evaluation"].map((name) => element("th", {}, name))));
  for (const agentId of agentIds) {
    const price = lastEvaluation?.agents?.[agentId]?.cost;
    table.append(element("tr", {}, ...[agentId, last?.agents?.[agentId]?.policy_id ?? "–", sum(agentId, "num_turns"), sum(agentId, "prompt_tokens"), sum(agentId, "completion_tokens"), short(sum(agentId, "seconds")), short(price)].map((value) => element("td", {}, String(value)))));
  }
  byId("cost-table").append(table);
}

function turnView(turn, group) {
  const who = element("span", { class: "who" }, turn.agent_id); who.style.color = `var(${colourOf(turn.agent_id)})`;
  const terms = Object.entries(turn.reward_terms ?? {}).map(([name, value]) => `${name} ${value >= 0 ? "+" : ""}${short(value)}`).join(", ");
  const facts = [`reward ${short(turn.reward)}`, `advantage ${short(turn.advantage)}`, terms && `terms: ${terms}`, `group ${group ?? "–"}`, `${turn.prompt_tokens} + ${turn.completion_tokens} tokens`, short(turn.seconds, "s"), turn.finish_reason === "stop" ? "" : turn.finish_reason].filter(Boolean).join("  ·  ");
  return element("div", { class: "turn" }, who, turn.valid ? null : element("span", { class: "invalid" }, `  invalid${turn.reason ? `: ${turn.reason}` : ""}`), element("pre", {}, turn.text), element("div", { class: "meta" }, facts),
    element("details", {}, element("summary", {}, "what it was shown"), element("pre", {}, turn.prompt ?? "")));
}
function rolloutView(rollout) {
  const state = rollout.status !== "completed" ? rollout.status : rollout.success ? "solved" : "failed";
  const returns = Object.entries(rollout.returns ?? {}).map(([agentId, value]) => `${agentId} ${short(value)}`).join(", ");
  const answer = Array.isArray(rollout.answer) ? rollout.answer.join(" | ") : rollout.answer;
  return element("article", { class: `rollout ${state}` },
    element("div", { class: "meta" }, [`${rollout.phase === "train" ? "iteration" : "evaluation at"} ${rollout.iteration}`, state, rollout.source, `returns: ${returns}`, rollout.error].filter(Boolean).join("  ·  ")),
    element("div", { class: "question" }, `${rollout.question ?? rollout.task_id}${answer === null || answer === undefined ? "" : `   →   ${answer}`}`),
    ...rollout.turns.map((turn) => turnView(turn, rollout.group_id)));
}
function browser() {
  byId("shown").textContent = `${transcripts.length} of ${DATA.num_transcripts} recorded episodes are in this page; the run directory holds them all.`;
  for (const agentId of agentIds) byId("f-agent").append(element("option", { value: agentId }, agentId));
  for (const source of new Set(transcripts.map((rollout) => rollout.source))) byId("f-source").append(element("option", { value: source }, source));
  let limit = 12;
  const matches = (rollout) => {
    const outcome = byId("f-outcome").value, text = byId("f-text").value.toLowerCase(), from = byId("f-from").value, to = byId("f-to").value, agent = byId("f-agent").value;
    if (outcome === "other" ? rollout.status === "completed" : outcome && (rollout.status !== "completed" || String(rollout.success === true) !== outcome)) return false;
    if (byId("f-phase").value && rollout.phase !== byId("f-phase").value) return false;
    if (byId("f-source").value && rollout.source !== byId("f-source").value) return false;
    if ((from && rollout.iteration < Number(from)) || (to && rollout.iteration > Number(to))) return false;
    if (agent && !rollout.turns.some((turn) => turn.agent_id === agent)) return false;
    return !text || [rollout.question, ...rollout.turns.map((turn) => turn.text)].some((part) => String(part ?? "").toLowerCase().includes(text));
  };
  const draw = () => {
    const found = transcripts.filter(matches);
    byId("list").replaceChildren(element("p", { class: "note" }, `${found.length} match`), ...found.slice(0, limit).map(rolloutView));
    byId("more").hidden = found.length <= limit;
  };
  for (const control of document.querySelectorAll("#transcripts > .filters select, #transcripts > .filters input")) control.addEventListener("input", () => { limit = 12; draw(); });
  byId("more").addEventListener("click", () => { limit += 24; draw(); });
  draw();
}
function words(early, late) {
  const a = early.split(/(\s+)/), b = late.split(/(\s+)/);
  if (a.length * b.length > 250000) return [[late], [early]];
  const table = Array.from({ length: a.length + 1 }, () => new Uint16Array(b.length + 1));
  for (let i = a.length - 1; i >= 0; i--) for (let j = b.length - 1; j >= 0; j--) table[i][j] = a[i] === b[j] ? table[i + 1][j + 1] + 1 : Math.max(table[i + 1][j], table[i][j + 1]);
  const left = [], right = [];
  for (let i = 0, j = 0; i < a.length || j < b.length;) {
    if (i < a.length && j < b.length && a[i] === b[j]) { left.push(a[i++]); right.push(b[j++]); }
    else if (j >= b.length || (i < a.length && table[i + 1][j] >= table[i][j + 1])) left.push(element("del", {}, a[i++]));
    else right.push(element("ins", {}, b[j++]));
  }
  return [left, right];
}
function differences() {
  const byTask = new Map();
  for (const rollout of transcripts) byTask.set(rollout.task_id, [...(byTask.get(rollout.task_id) ?? []), rollout]);
  const several = [...byTask.entries()].map(([task, found]) => [task, found.sort((a, b) => a.iteration - b.iteration)]).filter(([, found]) => found.at(-1).iteration > found[0].iteration);
  if (!several.length) { byId("diff").hidden = true; return; }
  for (const [task, found] of several.slice(0, 100)) byId("diff-task").append(element("option", { value: task }, String(found[0].question ?? task).slice(0, 80)));
  const draw = () => {
    const found = byTask.get(byId("diff-task").value) ?? several[0][1];
    const [early, late] = [found[0], found.at(-1)];
    const views = [rolloutView(early), rolloutView(late)];
    early.turns.forEach((turn, index) => {
      if (late.turns[index]?.agent_id !== turn.agent_id) return;
      const [left, right] = words(turn.text, late.turns[index].text);
      views[0].querySelectorAll(".turn > pre")[index].replaceChildren(...left);
      views[1].querySelectorAll(".turn > pre")[index].replaceChildren(...right);
    });
    byId("diff-pair").replaceChildren(...views);
  };
  byId("diff-task").addEventListener("input", draw);
  draw();
}
function theme() {
  byId("theme").addEventListener("click", () => {
    const dark = document.documentElement.dataset.theme ? document.documentElement.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    document.documentElement.dataset.theme = dark ? "light" : "dark";
  });
}
header(); curves(); histograms(); cost(); browser(); differences(); theme();
byId("settings-text").textContent = JSON.stringify(settings, null, 2);
document.body.dataset.ready = "true";
