// The page: asks the server for what is new, keeps it, and shows it. Names and texts that come from
// files are only ever set as text.
"use strict";

const PERIOD_MS = 1500;
const state = {
    revision: 0, runs: new Map(), order: [], hidden: new Set(), checkpoints: [], logs: [],
    run: null, rank: 0, log: null, detail: null, paused: false, failures: 0, now: 0,
    drawn: "", detailDrawn: "", logDrawn: null, result: {best: null, slow: null, findings: []},
};
const byId = id => document.getElementById(id);
const LIVE = new Set(["training", "validation", "starting", "running", "saving a checkpoint", "saving the model"]);

// What the page remembers while its tab is open. Browsers may forbid that.
function remember(key, value) {
    try { sessionStorage.setItem("fsdp-" + key, value); } catch (error) { /* then it is forgotten */ }
}
function recall(key) {
    try { return sessionStorage.getItem("fsdp-" + key); } catch (error) { return null; }
}

function colour(run) {
    return "c" + state.order.indexOf(run.id) % 8;
}
function shownRuns() {
    return state.order.map(id => state.runs.get(id)).filter(run => !state.hidden.has(run.id));
}
function axis() {
    return document.querySelector("input[name=axis]:checked").value;
}

// ---- asking the server ----

async function ask(path) {
    const answer = await fetch(path, {cache: "no-store"});
    if (!answer.ok)
        throw new Error(String(answer.status));
    return answer.json();
}

function takeRuns(answer) {
    const kept = new Set();
    for (const fresh of answer.runs) {
        const old = state.runs.get(fresh.id);
        if (!fresh.curves && old) { // nothing new: keep what was sent before
            fresh.curves = old.curves;
            fresh.description = old.description;
            fresh.saved = old.saved;
        }
        fresh.curves = fresh.curves || {};
        for (const curve of Object.values(fresh.curves))
            if (curve.like && fresh.curves[curve.like]) { // the same steps as another curve
                curve.step = fresh.curves[curve.like].step;
                curve.at = fresh.curves[curve.like].at;
            }
        state.runs.set(fresh.id, fresh);
        kept.add(fresh.id);
    }
    for (const id of [...state.runs.keys()])
        if (!kept.has(id))
            state.runs.delete(id);
    state.order = answer.runs.map(run => run.id);
    state.revision = answer.revision;
    state.now = answer.now;
    state.checkpoints = answer.checkpoints;
    state.logs = answer.logs;
    if (!state.runs.has(state.run))
        state.run = state.order.length ? state.order[0] : null;
    byId("folders").textContent = answer.folders.join("  ·  ") + (answer.cut ? " (more than the page shows)" : "");
}

async function refresh() {
    takeRuns(await ask("runs?since=" + state.revision));
    state.detail = state.run === null ? null : await ask("run?id=" + state.run).catch(() => null);
    if (!state.logs.some(log => log.id === state.log))
        state.log = chooseLog();
    const log = state.log === null ? null : await ask("log?id=" + state.log).catch(() => null);
    draw();
    drawLog(log);
}

function showStatus(error) {
    const status = byId("status");
    status.classList.toggle("lost", Boolean(error));
    if (error)
        status.textContent = /^\d/.test(error.message) ? "the server refuses (" + error.message + "): is this address still right?"
            : "no answer: the dashboard has ended, or the tunnel to it";
    else
        status.textContent = (state.paused ? "paused at " : "live, ") + clock(state.now);
}

async function tick() {
    let wait = PERIOD_MS;
    if (!state.paused && !document.hidden) {
        try {
            await refresh();
            state.failures = 0;
            showStatus(null);
        } catch (error) {
            state.failures++;
            wait = Math.min(15000, PERIOD_MS * 2 ** Math.min(state.failures, 4));
            showStatus(error);
        }
    }
    setTimeout(tick, wait);
}

// ---- tables ----

function row(cells, attributes) {
    return el("tr", attributes || {}, ...cells);
}
function cell(text, kind) {
    return el("td", kind ? {class: kind} : {}, text);
}
// Names of columns; one in brackets is that of a column of text, which begins at the left.
function heads(...names) {
    return el("thead", {}, row(names.map(name => Array.isArray(name) ? el("th", {scope: "col", class: "left"}, name[0])
        : el("th", {scope: "col", title: name}, name))));
}

// Replace a table only if it would look different, so that a selection of text and the focus stay.
function fill(table, head, rows) {
    const body = el("tbody", {}, ...rows);
    const probe = el("table", {}, head, body);
    if (table.wasHtml === probe.innerHTML)
        return;
    const focused = table.contains(document.activeElement) ? document.activeElement.dataset.run : null;
    table.wasHtml = probe.innerHTML;
    table.replaceChildren(head, body);
    if (focused) {
        const again = table.querySelector(`[data-run="${Number(focused)}"]`);
        if (again)
            again.focus();
    }
}

function splitBar(run) {
    const split = splitOf(run);
    if (!split)
        return el("span", {class: "note"}, "–");
    const outside = timeOutside(run), inside = 1 - outside.validation - outside.save;
    const parts = [["compute", split.compute / split.step * inside], ["wait", split.wait / split.step * inside],
        ["data", split.data / split.step * inside], ["other", outside.validation + outside.save]];
    const text = parts.map(([name, part]) => `${name === "other" ? "validation and checkpoints" : name} ${percent(part)}`).join(", ");
    const bar = svg("svg", {class: "split", viewBox: "0 0 150 12", preserveAspectRatio: "none", role: "img", "aria-label": text});
    svg("title", {}, bar, text);
    let at = 0;
    for (const [kind, part] of parts) {
        const width = Math.max(0, part) * 150;
        svg("rect", {class: "part " + kind, x: at.toFixed(1), y: 0, width: width.toFixed(1), height: 12}, bar);
        at += width;
    }
    return bar;
}

function stateText(run) {
    if (run.state === "silent" || run.state === "gone")
        return run.state + " for " + duration(state.now - run.time);
    return run.state;
}
function stateKind(text) {
    return LIVE.has(text) ? "state-live" : "state-" + text;
}

function progressText(run) {
    const total = run.description && run.description.total_steps;
    const read = run.read < 0.999 ? ` (${percent(run.read)} read)` : "";
    return shownStep(run.step) + (total ? " / " + shownStep(total) : "") + read;
}
function shownStep(step) {
    return step.toLocaleString("en-US");
}

function drawRuns() {
    const runs = state.order.map(id => state.runs.get(id));
    const speeds = runs.map(run => run.tokens_per_s || 0), by = runs.length ? rankBy(runs) : null;
    byId("runs-empty").hidden = runs.length > 0;
    byId("runs-empty").textContent = "No runs in these folders yet. A run appears here when 'fsdp train' writes with --metrics FILE or --report-to json.";
    byId("time-key").replaceChildren(...(runs.length ? [["compute", "computing"], ["wait", "waiting for other ranks"], ["data", "waiting for data"], ["other", "validation and checkpoints"]]
        .map(([kind, text]) => el("span", {}, el("i", {class: "swatch " + kind}), text)) : []));
    fill(byId("runs"), heads("run", ["state"], "step", "training loss", "best validation loss", "at step", "tokens/s", "time a step", ["where the time goes"]),
        runs.map(run => {
            const toggle = el("input", {type: "checkbox", checked: !state.hidden.has(run.id), "aria-label": "show the curves of " + run.name,
                onchange: () => toggleRun(run.id)});
            const name = el("button", {type: "button", class: "link", title: run.folder + "/" + run.file, "data-run": run.id,
                onclick: () => chooseRun(run.id)}, run.name);
            const first = el("td", {class: "name"}, toggle, " ", el("i", {class: "swatch " + colour(run)}), name,
                state.result.best === run.id ? el("span", {class: "badge best"}, "best") : null,
                state.result.slow === run.id ? el("span", {class: "badge slow"}, "slow") : null);
            return row([first, cell(stateText(run), "left " + stateKind(run.state)), cell(progressText(run)), cell(shortNumber(lastLoss(run))),
                cell(shortNumber(run.best_loss), runs.length > 1 && state.result.best === run.id && by.name === "validation loss" ? "top" : ""),
                cell(run.best_step === null ? "–" : shownStep(run.best_step)),
                cell(shortNumber(run.tokens_per_s), runs.length > 1 && state.result.slow === run.id ? "low"
                    : runs.length > 1 && run.tokens_per_s > 0 && run.tokens_per_s === Math.max(...speeds) ? "top" : ""),
                cell(duration(run.step_s)), el("td", {class: "left"}, splitBar(run))],
                {class: (state.run === run.id ? "chosen " : "") + (state.hidden.has(run.id) ? "hid" : "")});
        }));
}

function drawFindings() {
    state.result = compare(state.order.map(id => state.runs.get(id)));
    const damaged = state.checkpoints.filter(c => c.verdict === "damaged");
    const items = state.result.findings.map(finding => {
        const item = el("li", {class: finding.kind});
        for (const part of finding.parts)
            item.append(Array.isArray(part) ? el("b", {}, part[0]) : part);
        for (const why of finding.why)
            if (why)
                item.append(el("span", {class: "why"}, why));
        return item;
    });
    for (const c of damaged)
        items.push(el("li", {class: "bad"}, "The checkpoint ", el("b", {}, c.path), " is damaged.", el("span", {class: "why"}, c.message)));
    byId("findings").hidden = items.length === 0;
    const html = items.map(item => item.outerHTML).join("");
    if (byId("findings-list").wasHtml !== html)
        byId("findings-list").replaceChildren(...items);
    byId("findings-list").wasHtml = html;
}

function drawSettings() {
    const runs = shownRuns(), rows = differingSettings(runs);
    byId("differences").hidden = rows.length === 0;
    fill(byId("settings"), heads("setting", ...runs.map(run => run.name)), rows.map(([key, values]) =>
        row([cell(key), ...values.map(value => cell(value))])));
}

// ---- curves ----

const CHARTS = [["train/loss", "training loss"], ["eval/loss", "validation loss"], ["train/tokens_per_s", "throughput, tokens/s"],
    ["train/lr", "learning rate"], ["train/grad_norm", "gradient norm"]];

function curveNames() {
    const names = new Set();
    for (const run of shownRuns())
        for (const name in run.curves)
            names.add(name);
    return names;
}

function lineOf(run, name) {
    const curve = run.curves[name];
    if (!curve || curve[axis()][0] === null) // event files say nothing about time
        return null;
    return {name: run.name, kind: colour(run), dashed: state.order.indexOf(run.id) >= 8, x: curve[axis()], y: curve.mean,
        min: curve.min, max: curve.max, dots: name.startsWith("eval/")};
}

// Return true if the rates of several runs differ so much that one of them would be a flat line.
function spansDecades(lines) {
    const most = lines.map(line => Math.max(...line.y.filter(v => v > 0)));
    return most.length > 1 && Math.max(...most) > 10 * Math.min(...most) && Math.min(...most) > 0;
}

function drawCurves() {
    const names = curveNames(), more = byId("more");
    const others = [...names].filter(name => !CHARTS.some(chart => chart[0] === name)).sort();
    if (more.wasNames !== others.join()) {
        const chosen = more.value || recall("more") || "";
        more.wasNames = others.join();
        more.replaceChildren(el("option", {value: ""}, others.length ? "none" : "no others"), ...others.map(name => el("option", {value: name}, name)));
        more.value = others.includes(chosen) ? chosen : "";
    }
    const charts = CHARTS.filter(chart => names.has(chart[0]));
    if (more.value)
        charts.push([more.value, more.value]);
    const box = byId("curves");
    while (box.children.length < charts.length)
        box.append(el("figure", {}));
    while (box.children.length > charts.length)
        box.lastChild.remove();
    const isTime = axis() === "at", smoothing = Number(byId("smoothing").value);
    charts.forEach(([name, title], i) => {
        const lines = shownRuns().map(run => lineOf(run, name)).filter(line => line);
        const gaps = shownRuns().reduce((sum, run) => sum + (run.curves[name] ? run.curves[name].not_finite : 0), 0);
        drawLines(box.children[i], lines, {title, note: gaps ? gaps + " values are not numbers" : name === "train/lr" && !byId("log").checked && spansDecades(lines) ? "log scale" : "", isTime, xLabel: isTime ? "training time" : "step",
            isLog: byId("log").checked || name === "train/lr" && spansDecades(lines), smoothing: name === "train/lr" ? 0 : smoothing, withoutSpikes: byId("outliers").checked});
    });
    byId("smoothing-value").textContent = smoothing.toFixed(2);
    byId("legend").replaceChildren(...shownRuns().map(run => el("span", {}, el("i", {class: "swatch " + colour(run)}), run.name)));
}

// ---- one run ----

function drawPickers() {
    const runs = byId("run"), ranks = byId("rank"), all = state.detail ? state.detail.ranks : [];
    const names = state.order.map(id => state.runs.get(id).name);
    if (runs.wasNames !== JSON.stringify([state.order, names])) {
        runs.wasNames = JSON.stringify([state.order, names]);
        runs.replaceChildren(...state.order.map((id, i) => el("option", {value: id}, names[i])));
    }
    if (runs.value !== String(state.run))
        runs.value = String(state.run);
    if (ranks.children.length !== all.length)
        ranks.replaceChildren(...all.map(rank => el("option", {value: rank.rank}, rank.rank)));
    if (state.rank >= all.length)
        state.rank = 0;
    ranks.value = String(state.rank);
    byId("detail-title").textContent = state.run === null ? "One run" : "Run " + state.runs.get(state.run).name;
}

function drawRanks() {
    const ranks = state.detail ? state.detail.ranks : [], straggler = state.run === null ? null : stragglerOf(state.runs.get(state.run));
    byId("no-ranks").hidden = state.run === null || ranks.length > 0;
    byId("rank-parts").hidden = ranks.length === 0;
    const share = (rank, seconds) => rank.seconds > 0 ? percent(seconds / rank.seconds) : "–";
    fill(byId("ranks"), heads("rank", ["state"], "step", "last news", "computing", "waiting", "data", "core busy", "memory now", ["where"], ["message"]), ranks.map(rank => {
        const newest = rank.samples[rank.samples.length - 1];
        return row([cell(String(rank.rank) + (straggler && straggler.rank === rank.rank ? " (slow)" : "")), cell(rank.state, "left " + stateKind(rank.state)),
            cell(shownStep(rank.step)), cell(rank.state === "ended" || rank.state === "failed" ? clock(rank.time) : duration(Math.max(0, state.now - rank.time)) + " ago"),
            cell(share(rank, rank.seconds - rank.wait_s - rank.data_s), straggler && straggler.rank === rank.rank ? "low" : ""),
            cell(share(rank, rank.wait_s)), cell(share(rank, rank.data_s)), cell(percent(rank.queued), rank.queued > 0.1 ? "low" : ""), cell(newest ? bytes(newest[6]) : "–"),
            cell(`${rank.host}, ${rank.device}, ${rank.threads} ${rank.threads === 1 ? "thread" : "threads"}, process ${rank.pid}`, "left"), cell(rank.message, "wrap")]);
    }));
}

const PURPOSE_KINDS = ["c0", "c1", "c2", "c5", "c3", "c4", "c6", "c7"];

function drawMemory() {
    const rank = state.detail && state.detail.ranks[state.rank];
    if (!rank)
        return;
    const samples = rank.samples, xs = samples.map(s => s[1]);
    // Several samples may have the same step, such as those of a validation: the last one counts.
    const kept = samples.filter((s, i) => i + 1 === samples.length || samples[i + 1][1] > s[1]);
    const most = Math.max(0, ...state.detail.ranks.flatMap(r => r.samples.map(s => s[6])));
    drawStack(byId("memory"), kept.map(s => s[1]), state.detail.purposes.map((name, i) => ({name: purposeName(name), kind: PURPOSE_KINDS[i % 8], y: kept.map(s => s[8 + i])})),
        {title: "memory by purpose, rank " + rank.rank, note: kept.length ? "most at once " + bytes(Math.max(...samples.map(s => s[6]))) : "", format: bytes,
            yTicks: byteTicks(most), most});
    const shares = samples.filter(s => s[2] > 0 && s[3] > 0);
    drawStack(byId("waits"), shares.map(s => s[1]), [["computing", "compute", s => s[3] - s[4] - s[5]], ["waiting for other ranks", "wait", s => s[4]], ["waiting for data", "data", s => s[5]]]
        .map(([name, kind, part]) => ({name, kind, y: shares.map(s => Math.max(0, part(s)) / s[3])})),
        {title: "where the time of a step goes, rank " + rank.rank, format: percent, yTicks: [0, 0.25, 0.5, 0.75, 1], most: 1});
}

function purposeName(tag) {
    return {param: "parameters", grad: "gradients", optim: "optimizer state", activation: "activations", comm: "communication", data: "batches"}[tag] || tag;
}

function byteTicks(most) {
    const step = 2 ** Math.ceil(Math.log2(Math.max(most, 1) / 5)), all = [];
    for (let v = 0; v <= most; v += step)
        all.push(v);
    return all;
}

function drawUnits() {
    const units = state.detail ? state.detail.units : [], rank = state.detail && state.detail.ranks[0];
    const total = unit => unit.gather_bytes + unit.reduce_bytes + unit.all_reduce_bytes;
    const most = Math.max(1e-9, ...units.map(unit => unit.wait_s)), steps = rank ? rank.step : 0;
    byId("units-note").textContent = units.length
        ? `Since the run began, on each rank; written once a minute. All units: ${bytes(units.reduce((sum, unit) => sum + total(unit), 0))} in collectives, `
            + `${duration(units.reduce((sum, unit) => sum + unit.wait_s, 0))} of waiting.` + (rank && units.every(unit => !total(unit)) ? " One rank communicates nothing." : "")
        : "Nothing was written about collectives yet.";
    fill(byId("units"), heads("unit", "all-gathers", "bytes", "reduce-scatters", "bytes", "all-reduces", "bytes", ["waiting, mean of ranks"], "most of a rank"), units.map(unit => {
        const bar = svg("svg", {class: "bar", viewBox: "0 0 90 9", preserveAspectRatio: "none", "aria-hidden": "true"});
        svg("rect", {class: "part wait", x: 0, y: 0, width: (90 * unit.wait_s / most).toFixed(1), height: 9}, bar);
        return row([cell(unit.name, "name"), cell(shownStep(unit.gathers)), cell(bytes(unit.gather_bytes)), cell(shownStep(unit.reduces)), cell(bytes(unit.reduce_bytes)),
            cell(shownStep(unit.all_reduces)), cell(bytes(unit.all_reduce_bytes)), el("td", {class: "left"}, duration(unit.wait_s), bar), cell(duration(unit.most_wait_s))]);
    }));
}

const VERDICTS = {unchecked: "not looked at yet", good: "complete; files and index agree", damaged: "damaged",
    incomplete: "incomplete, or being written", linked: "not looked at: has symbolic links"};

function drawCheckpoints() {
    const several = new Set(state.checkpoints.map(c => c.run)).size > 1 || state.checkpoints.some(c => c.run === null);
    const mine = state.checkpoints.filter(c => c.run === null || c.run === state.run);
    byId("no-checkpoints").hidden = mine.length > 0;
    const run = state.run === null ? null : state.runs.get(state.run);
    fill(byId("checkpoints"), heads("checkpoint", ["verification"], "step", "size", "files", "took", ["to read every byte"]), mine.map(c => {
        const saved = run && c.run === run.id ? (run.saved || []).find(s => s[0] === c.step) : null;
        return row([cell(c.path + (c.run === null && several ? " (of which run is not known)" : ""), "name"), cell((VERDICTS[c.verdict] || c.verdict) + (c.message ? ": " + c.message : ""), "wrap verdict-" + c.verdict),
            cell(c.step === null ? "–" : shownStep(c.step)), cell(bytes(c.bytes)),
            cell(String(c.files)), cell(saved ? duration(saved[1]) : "–"),
            el("td", {class: "left"}, el("code", {}, "fsdp checkpoint verify " + quoted(c.folder + "/" + c.path)))]);
    }));
}

function quoted(path) {
    return /^[\w@%+=:,.\/-]+$/.test(path) ? path : "'" + path.replace(/'/g, "'\\''") + "'";
}

// ---- the log ----

// The newest log that is not empty; of those, the one whose path has most in common with the run's.
function chooseLog() {
    const run = state.run === null ? null : state.runs.get(state.run), path = run ? run.file : "";
    const common = log => {
        let i = 0;
        while (i < path.length && path[i] === log.path[i])
            i++;
        return i;
    };
    const sorted = state.logs.filter(log => !run || log.folder === run.folder || true)
        .sort((a, b) => Number(b.bytes > 0) - Number(a.bytes > 0) || common(b) - common(a) || b.time - a.time || (a.path < b.path ? -1 : 1));
    return sorted.length ? sorted[0].id : null;
}

// Terminals overwrite a line after a carriage return, and hide escape sequences. So does this.
function plainLog(text) {
    return text.replace(/\x1b\[[0-9;?]*[ -\/]*[@-~]|\x1b\][^\x07]*\x07/g, "").replace(/\r+\n/g, "\n").split("\n")
        .map(line => line.slice(line.replace(/\r+$/, "").lastIndexOf("\r") + 1)).join("\n").replace(/[\x00-\x08\x0b-\x1f\x7f]/g, "");
}

function drawLog(log) {
    const files = byId("log-file"), names = state.logs.map(l => `${l.path} (${bytes(l.bytes)})`);
    byId("no-logs").hidden = state.logs.length > 0;
    files.parentElement.hidden = state.logs.length === 0;
    if (files.wasNames !== names.join("\n")) {
        files.wasNames = names.join("\n");
        files.replaceChildren(...state.logs.map((l, i) => el("option", {value: l.id}, names[i])));
    }
    if (state.log !== null)
        files.value = String(state.log);
    const pre = byId("log-text"), text = log ? plainLog(log.text) : "";
    if (pre.textContent === text)
        return;
    const atEnd = pre.scrollTop + pre.clientHeight >= pre.scrollHeight - 8 || state.logDrawn !== state.log;
    pre.textContent = text;
    state.logDrawn = state.log;
    if (atEnd)
        pre.scrollTop = pre.scrollHeight;
}

// ---- everything ----

function draw() {
    const key = JSON.stringify([state.revision, state.order, [...state.hidden], axis(), byId("log").checked, byId("outliers").checked,
        byId("smoothing").value, byId("more").value, innerWidth]);
    drawFindings();
    drawRuns();
    if (key !== state.drawn) {
        drawSettings();
        drawCurves();
    }
    state.drawn = key;
    drawPickers();
    drawRanks();
    const detailKey = JSON.stringify([state.run, state.rank, innerWidth, state.detail && state.detail.ranks.map(r => r.samples.length && r.samples[r.samples.length - 1])]);
    if (detailKey !== state.detailDrawn)
        drawMemory();
    state.detailDrawn = detailKey;
    drawUnits();
    drawCheckpoints();
    const live = shownRuns().filter(run => LIVE.has(run.state)).length;
    document.title = (live ? `${live} running · ` : "") + "fsdp dashboard";
}

function toggleRun(id) {
    if (state.hidden.has(id))
        state.hidden.delete(id);
    else
        state.hidden.add(id);
    draw();
}

async function chooseRun(id) {
    state.run = id;
    state.rank = 0;
    state.log = chooseLog();
    try {
        await refresh();
    } catch (error) {
        showStatus(error);
    }
}

function moveRun(by) {
    if (state.order.length)
        chooseRun(state.order[(state.order.indexOf(state.run) + by + state.order.length) % state.order.length]);
}

function togglePause() {
    state.paused = !state.paused;
    byId("pause").textContent = state.paused ? "go on" : "pause";
    byId("pause").setAttribute("aria-pressed", String(state.paused));
    showStatus(null);
}

function setSmoothing(by) {
    const input = byId("smoothing");
    input.value = String(Number(input.value) + by);
    remember("smoothing", input.value);
    draw();
}

function onKey(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName) && event.target.type !== "checkbox" && event.target.type !== "radio")
        return;
    const actions = {
        x: () => document.querySelector(`input[name=axis][value=${axis() === "step" ? "at" : "step"}]`).click(),
        l: () => byId("log").click(), s: () => setSmoothing(-0.1), S: () => setSmoothing(0.1),
        j: () => moveRun(1), k: () => moveRun(-1), p: togglePause,
        r: () => {
            state.rank = state.detail && state.detail.ranks.length ? (state.rank + 1) % state.detail.ranks.length : 0;
            draw();
        },
    };
    if (actions[event.key])
        actions[event.key]();
    else if (/^[1-9]$/.test(event.key) && state.order[Number(event.key) - 1] !== undefined)
        toggleRun(state.order[Number(event.key) - 1]);
    else
        return;
    event.preventDefault();
}

function start() {
    for (const id of ["smoothing", "log", "outliers"]) {
        const kept = recall(id), input = byId(id);
        if (kept !== null)
            input[input.type === "checkbox" ? "checked" : "value"] = input.type === "checkbox" ? kept === "true" : kept;
        input.addEventListener("input", () => {
            remember(id, input.type === "checkbox" ? input.checked : input.value);
            draw();
        });
    }
    byId("more").addEventListener("change", () => {
        remember("more", byId("more").value);
        draw();
    });
    for (const input of document.querySelectorAll("input[name=axis]"))
        input.addEventListener("change", draw);
    byId("controls").addEventListener("submit", event => event.preventDefault());
    byId("pause").addEventListener("click", togglePause);
    byId("run").addEventListener("change", event => chooseRun(Number(event.target.value)));
    byId("rank").addEventListener("change", event => {
        state.rank = Number(event.target.value);
        draw();
    });
    byId("log-file").addEventListener("change", async event => {
        state.log = Number(event.target.value);
        drawLog(await ask("log?id=" + state.log).catch(() => null));
    });
    document.addEventListener("keydown", onKey);
    addEventListener("resize", () => requestAnimationFrame(draw));
    tick();
}

start();
