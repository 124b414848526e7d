// The program of the page. It asks the server for new data, keeps them, and shows them. Names and
// texts from files are set only as text, never as markup.
"use strict";

const PERIOD_MS = 1500;
const state = {
    revision: 0, runs: new Map(), order: [], hidden: new Set(), checkpoints: [], logs: [],
    run: null, rank: 0, log: null, detail: null, paused: false, failures: 0, now: 0,
    drawn: "", detailDrawn: "", logDrawn: null, result: {best: new Set(), slow: new Set(), findings: []}, isChosen: false,
};
const byId = id => document.getElementById(id);

// Store a value as long as the tab of the page is open. If the browser forbids this, the value is
// not stored.
function remember(key, value) {
    try { sessionStorage.setItem("fsdp-" + key, value); } catch (error) { /* then it is forgotten */ }
}
function recall(key) {
    try { return sessionStorage.getItem("fsdp-" + key); } catch (error) { return null; }
}

function color(run) {
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
        if (!fresh.curves && old) { // nothing has changed: keep the data that the server sent before
            fresh.curves = old.curves;
            fresh.description = old.description;
            fresh.saved = old.saved;
        }
        fresh.curves = fresh.curves || {};
        for (const curve of Object.values(fresh.curves))
            if (curve.like && fresh.curves[curve.like]) { // the curve has the same steps as the curve `like`, and the server sent them only once
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
    state.result = compare(state.order.map(id => state.runs.get(id)));
    chooseFirst();
    const id = state.run, detail = id === null ? null : await ask("run?id=" + id).catch(() => null);
    if (id !== state.run) // another run was chosen meanwhile, whose own refresh() draws it
        return;
    state.detail = detail;
    if (!state.logs.some(log => log.id === state.log))
        state.log = chooseLog();
    const logId = state.log, log = logId === null ? null : await ask("log?id=" + logId).catch(() => null);
    if (id !== state.run)
        return;
    draw();
    if (logId === state.log)
        drawLog(log);
}

function showStatus(error) {
    const status = byId("status");
    status.classList.toggle("lost", Boolean(error));
    if (error)
        status.textContent = /^\d/.test(error.message) ? "the server refuses (" + error.message + "): is this address still right?"
            : "no answer: the dashboard has ended, or the tunnel to it";
    else
        status.textContent = statusText([...state.runs.values()], state.paused, clock(state.now));
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
// Make the heading row of a table. A column is its name, or [name, help text, class]. showHelp()
// shows the help text.
function heads(...columns) {
    return el("thead", {}, row(columns.map(column => {
        const [name, help, kind] = Array.isArray(column) ? column : [column];
        return el("th", {scope: "col", class: kind, "data-help": help || undefined, tabindex: help ? "0" : undefined}, name);
    })));
}

const HELP = {
    state: "What the run does now. silent: it has written nothing for 20 seconds and three of its steps. gone: in addition, its process is not on this host.",
    compute: "Share of the time of a step in which the rank computes, or waits for its GPU.",
    core: "Share of the time of a step in which the rank was ready to run, but other programs or other ranks had its core.",
    stop: "Share of the time of a step in which the rank neither ran nor was ready to: it was stopped, or waited for its disk or for memory.",
    wait: "Share of the time of a step in which the rank waits in collectives for ranks that come later.",
    data: "Share of the time of a step in which the rank waits for the next batch.",
};

// Show the help text of a column below its heading when the pointer is on the heading, after a
// touch, and when the heading has the focus.
function showHelp(event) {
    const head = event.type === "keydown" ? null : event.target.closest && event.target.closest("[data-help]"), tip = byId("help");
    for (const old of document.querySelectorAll("[aria-describedby=help]"))
        old.removeAttribute("aria-describedby");
    tip.hidden = !head;
    if (!head)
        return;
    tip.textContent = head.dataset.help;
    head.setAttribute("aria-describedby", "help");
    placeHelp();
}

function placeHelp() {
    const head = document.querySelector("[aria-describedby=help]"), tip = byId("help");
    if (!head)
        return;
    const box = head.getBoundingClientRect(), width = document.documentElement.clientWidth;
    tip.style.top = (scrollY + box.bottom + 4) + "px";
    tip.style.left = Math.max(8, Math.min(box.left, width - tip.offsetWidth - 8)) + "px";
}

// Replace the rows of a table only if the table would look different. Otherwise a selection of text
// and the focus would be lost.
function fill(table, head, rows) {
    const body = el("tbody", {}, ...rows), names = [...head.querySelectorAll("th")].map(th => th.textContent);
    for (const tr of rows) // on a narrow page, the rows of some tables are shown as cards with these labels
        [...tr.children].forEach((td, i) => td.setAttribute("data-label", names[i]));
    const probe = el("table", {}, head, body);
    if (table.wasHtml === probe.innerHTML)
        return;
    const active = table.contains(document.activeElement) ? document.activeElement : null;
    const focused = active && active.dataset.run, column = active && active.dataset.help ? active.cellIndex : -1;
    table.wasHtml = probe.innerHTML;
    table.replaceChildren(head, body);
    if (focused) {
        const again = table.querySelector(`[data-run="${Number(focused)}"]`);
        if (again)
            again.focus();
    }
    const heads = table.querySelectorAll("th");
    if (column >= 0 && heads[column])
        heads[column].focus({preventScroll: true});
}

const PARTS = [["compute", "computing"], ["core", "no core free"], ["stop", "stopped, or on disk"], ["wait", "waiting for other ranks"],
    ["data", "waiting for data"], ["validation", "validation"], ["save", "checkpoints"], ["rest", "loading, warm-up and the rest"]];

// Return the parts of the whole time of a run, in seconds for 1000 tokens, or for a step if runs do
// not count tokens: [[kind, seconds], ...]; null if the run has no rank files.
function partsOf(run, inTokens) {
    const cost = run.steps > 0 ? costsOf(run) : null, work = workOf(run, inTokens) / (inTokens ? 1000 : 1);
    return cost && cost.compute !== undefined ? [["compute", cost.compute], ["core", cost.noCore], ["stop", cost.stopped], ["wait", cost.wait], ["data", cost.data],
        ["validation", cost.validation], ["save", cost.save], ["rest", cost.rest]].map(([kind, seconds]) => [kind, seconds / work]) : null;
}

// Return the width of the longest bar in the table of runs, in pixels: more if the page has room.
function barWidth() {
    return innerWidth > 1300 ? 220 : innerWidth > CARD_WIDTH ? 110 : 200;
}
const CARD_WIDTH = 960, BAR_HEIGHT = 16; // up to CARD_WIDTH, page.css shows each run as a card
const LABEL_WIDTH = 29; // a part of a bar that is at least so wide, in pixels, shows its share

// Return the bar with the parts of a run's time, and the time after it. The bars of all runs have the
// same scale: a run that takes twice as long for as many tokens has a bar that is twice as long.
// `most` is the longest of these times.
function splitBar(run, most, inTokens) {
    const parts = partsOf(run, inTokens);
    if (!parts)
        return el("span", {class: "note"}, "–");
    const whole = parts.reduce((sum, [, seconds]) => sum + seconds, 0) || 1;
    const text = parts.filter(([, seconds]) => seconds > 0.001 * whole).map(([kind, seconds]) =>
        `${PARTS.find(part => part[0] === kind)[1]} ${duration(seconds)} (${percent(seconds / whole)})`).join(", ");
    const longest = barWidth(), size = Math.max(1, Math.ceil(longest * whole / most));
    const bar = svg("svg", {class: "split", width: size, height: BAR_HEIGHT, viewBox: `0 0 ${size} ${BAR_HEIGHT}`, role: "img", "aria-label": (inTokens ? "1000 tokens: " : "a step: ") + text});
    svg("title", {}, bar, (inTokens ? "1000 tokens: " : "a step: ") + text);
    let at = 0;
    for (const [kind, seconds] of parts) {
        const width = seconds / most * longest;
        svg("rect", {class: "part " + kind, x: at.toFixed(1), y: 0, width: width.toFixed(1), height: BAR_HEIGHT}, bar);
        if (width >= LABEL_WIDTH)
            svg("text", {class: "share on-" + kind, x: (at + width / 2).toFixed(1), y: BAR_HEIGHT - 4, "text-anchor": "middle"}, bar, Math.round(100 * seconds / whole) + " %");
        at += width;
    }
    return el("span", {class: "bar-and-time"}, bar, " ", duration(whole));
}

function stateText(run) {
    if (run.state === "silent" || run.state === "gone")
        return run.state + " for " + duration(state.now - run.time);
    return run.state;
}
function stateKind(text) {
    return isLive(text) ? "state-live" : "state-" + text;
}

function progressText(run) {
    const total = run.description && run.description.total_steps;
    const read = run.read < 0.999 ? ` (${percent(run.read)} read)` : "";
    return shownStep(run.step) + (total ? " / " + shownStep(total) : "") + read;
}
function shownStep(step) {
    return step.toLocaleString("en-US");
}

// Return true if a finding says that something went wrong in the run.
function isBad(run) {
    return state.result.findings.some(finding => finding.kind === "bad" && finding.run === run);
}

function drawRuns() {
    const runs = state.order.map(id => state.runs.get(id));
    const measured = runs.filter(run => run.steps > 0), by = runs.length ? rankBy(runs) : null, inTokens = measured.length > 0 && countsTokens(measured);
    const speeds = runs.map(run => run.total_s > 0 && run.tokens_per_step > 0 ? workOf(run, true) / run.total_s : null), fastest = Math.max(...speeds.filter((speed, i) => !hasDiverged(runs[i])));
    byId("runs-empty").hidden = runs.length > 0;
    byId("runs-empty").textContent = "No runs in these folders yet. A run appears here when 'fsdp train' writes with --metrics FILE or --report-to json.";
    const parts = runs.map(run => partsOf(run, inTokens) || []), wholes = parts.map(all => all.reduce((sum, [, seconds]) => sum + seconds, 0));
    const most = Math.max(...wholes, 1e-9), used = PARTS.filter(([kind]) => parts.some((all, i) => all.some(part => part[0] === kind && part[1] > 0.002 * wholes[i])));
    byId("time-key").replaceChildren(...used.map(([kind, text]) => el("span", {}, el("i", {class: "swatch " + kind}), text)));
    const several = runs.length > 1, last = runs.map(lastLoss), losses = alignedNumbers(last), best = alignedNumbers(runs.map(run => run.best_loss));
    const rates = alignedNumbers(speeds), times = alignedDurations(runs.map(run => run.step_s));
    fill(byId("runs"), heads(["run", "The folder of a run below the named folders. The box shows or hides its curves; the name shows its details below.", "left"],
        ["state", HELP.state, "left"], ["step", "Optimizer steps done, of how many."], ["training loss" + (measured.length ? `, ${lastMeanText(measured)}` : ""), "Mean over the last twentieth of the steps, here. The summary of a run has the mean of its last epoch's steps, 'fsdp compare' shows that one, and --plot smooths over another window."],
        ["best validation loss", "The smallest loss of all validations."], ["at step", "The step of the smallest validation loss."],
        ["total time", "From the start of the run to its end, or until now: loading, validation and checkpoints are included."],
        ["tokens/s", `Tokens of all ranks in a second of the total time, padding left out. A run is slow if the fastest one makes more than ${SLOW_TIMES} times as many; a run whose loss has diverged is not the fastest. The curve of the throughput below leaves out what is between steps.`],
        ["tokens a step", "Mean over all steps, of all ranks and micro-steps, padding left out."], ["time a step", "Mean over all steps but the first one, which warms up. Compare it only between runs with as many tokens a step."],
        [`where the time of ${inTokens ? "1000 tokens" : "a step"} goes`, `The total time, as a mean over ranks, for ${inTokens ? "1000 tokens" : "a step"}. The bars of all runs have one scale: a longer bar is a slower run.`, "left"]),
        runs.map((run, i) => {
            const toggle = el("input", {type: "checkbox", checked: !state.hidden.has(run.id), "aria-label": "show the curves of " + run.name,
                onchange: () => toggleRun(run.id)});
            const first = el("td", {class: "name"}, toggle, " ", el("i", {class: "swatch " + color(run)}), runLink(run, false),
                state.result.best.has(run.id) ? el("span", {class: "badge best"}, state.result.best.size > 1 ? "joint best" : "best") : null,
                state.result.slow.has(run.id) ? el("span", {class: "badge slow"}, "slow") : null);
            return row([first, cell(stateText(run), "left " + stateKind(run.state)), cell(progressText(run)), cell(losses(last[i])),
                cell(best(run.best_loss), several && state.result.best.has(run.id) && by.name === "validation loss" ? "top" : ""),
                cell(run.best_step === null ? "–" : shownStep(run.best_step)),
                cell(duration(run.total_s)),
                cell(rates(speeds[i]), several && state.result.slow.has(run.id) ? "low" : several && speeds[i] > 0 && speeds[i] === fastest && !isBad(run) ? "top" : ""),
                cell(run.tokens_per_step > 0 ? shownStep(Math.round(run.tokens_per_step)) : "–"),
                cell(times(run.step_s)), el("td", {class: "left"}, splitBar(run, most, inTokens))],
                {class: "pick " + (state.run === run.id ? "chosen " : "") + (state.hidden.has(run.id) ? "hid" : ""), onclick: event => {
                    if (!event.target.closest("input, button") && !String(getSelection()))
                        chooseRun(run.id);
                }});
        }));
}

// Return a button that looks like a link and selects a run, whose details are below. In a finding,
// the button also scrolls to the details.
function runLink(run, isFinding) {
    return el("button", {type: "button", class: "link", title: "details of " + run.folder + "/" + run.file, "data-run": run.id, onclick: () => {
        chooseRun(run.id);
        if (isFinding)
            byId("detail").scrollIntoView({block: "start"});
    }}, run.name);
}

// Return the parts of `text` for a paragraph. In an option such as --batch-size, the browser must
// not break the line after a hyphen.
function withOptions(text) {
    return text.split(/(--[a-z][\w-]*(?: [A-Z]+)?)/).map((part, i) => i % 2 ? el("span", {class: "option"}, part) : part);
}

// As long as the user has not selected a run, show the details of the run of the first finding. Do
// this only when the server has read all files.
function chooseFirst() {
    const finding = state.result.findings.find(found => found.run);
    if (state.isChosen || !finding)
        return;
    state.isChosen = [...state.runs.values()].every(run => run.read >= 0.999);
    if (state.run === finding.run.id)
        return;
    state.run = finding.run.id;
    state.rank = 0;
    state.log = chooseLog();
}

function drawFindings() {
    const damaged = state.checkpoints.filter(c => c.verdict === "damaged");
    const items = state.result.findings.map(finding => {
        const item = el("li", {class: finding.kind});
        for (const part of finding.parts)
            item.append(...(Array.isArray(part) ? [el("b", {}, part[0])] : typeof part === "object" ? [runLink(part, true)] : withOptions(part)));
        for (const why of finding.why)
            if (why)
                item.append(el("span", {class: why.startsWith("• ") ? "why reason" : "why"}, ...withOptions(why)));
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

function optionName(key) {
    return key === "ranks" ? key : "--" + key;
}

// If there are fewer settings than runs, the table has a row for each run, like the table of runs.
// Otherwise it has a row for each setting.
function drawSettings() {
    const runs = shownRuns(), rows = differingSettings(runs);
    byId("differences").hidden = rows.length === 0;
    if (rows.length < runs.length)
        fill(byId("settings"), heads(["run", "", "left"], ...rows.map(([key]) => [optionName(key), "", "left"])), runs.map((run, i) =>
            row([el("td", {class: "name"}, el("i", {class: "swatch " + color(run)}), runLink(run, false)), ...rows.map(([, values]) => cell(values[i], "left"))])));
    else
        fill(byId("settings"), heads("setting", ...runs.map(run => run.name)), rows.map(([key, values]) =>
            row([cell(optionName(key)), ...values.map(value => cell(value))])));
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

// Each line also has a pattern of dashes, so that runs whose curves are at the same place can be
// distinguished.
function dashOf(run) {
    const i = state.order.indexOf(run.id);
    return "dash" + (i + Math.floor(i / 8)) % 4;
}

function lineOf(run, name) {
    const curve = run.curves[name];
    if (!curve || curve[axis()][0] === null) // event files have no times
        return null;
    return {name: run.name, kind: color(run), dash: dashOf(run), isBest: state.result.best.has(run.id), x: curve[axis()], y: curve.mean,
        min: curve.min, max: curve.max, dots: name.startsWith("eval/")};
}

function legendMark(run) {
    const mark = svg("svg", {class: "mark " + color(run), viewBox: "0 0 28 10", "aria-hidden": "true"});
    svg("path", {class: "curve " + dashOf(run), d: "M1 5L27 5"}, mark);
    return mark;
}

// Return true if the values of the runs differ so much that the line of one of them would look
// flat.
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
            isLog: byId("log").checked || name === "train/lr" && spansDecades(lines), smoothing: name === "train/lr" ? 0 : smoothing, withoutSpikes: byId("outliers").checked,
            withoutFar: byId("outliers").checked && /(^|[/_])loss$/.test(name)});
    });
    byId("smoothing-value").textContent = smoothing.toFixed(2);
    byId("legend").replaceChildren(...shownRuns().map(run => el("span", {}, legendMark(run), run.name)));
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
    const run = state.run === null ? null : state.runs.get(state.run), about = run && run.description;
    byId("detail-title").textContent = run ? "Run " + run.name : "One run";
    byId("run-folders").replaceChildren(...(about && typeof about.output === "string" && about.output
        ? ["folder of the model (--output): ", el("code", {}, about.output), settingsOf(run)["save-model"] === "false" ? ", not saved" : run.state === "ended" ? "" : ", not complete yet"] : []));
}

function drawRanks() {
    const ranks = state.detail ? state.detail.ranks : [], straggler = state.run === null ? null : stragglerOf(state.runs.get(state.run));
    byId("no-ranks").hidden = state.run === null || ranks.length > 0;
    byId("rank-parts").hidden = ranks.length === 0;
    const share = (rank, seconds) => rank.seconds > 0 ? percent(seconds / rank.seconds) : "–", split = run => new Map(run.ranks.map(r => [r[0], r]));
    const known = state.run === null ? new Map() : split(state.runs.get(state.run));
    const stoppedS = rank => known.has(rank.rank) ? known.get(rank.rank)[6] : null;
    const hasStopped = ranks.some(rank => stoppedS(rank) !== null), hasMessage = ranks.some(rank => rank.message);
    const coreShares = ranks.map(rank => rank.seconds > 0 ? rank.no_core_s / rank.seconds : 0).sort((a, b) => a - b), least = coreShares[0] || 0;
    fill(byId("ranks"), heads("rank", ["state", HELP.state, "left"], "step", ["last news", "When the rank wrote its last line: once a second at most, and at each change of its state."],
        ["computing", HELP.compute], ["no core", HELP.core], ...(hasStopped ? [["stopped", HELP.stop]] : []), ["waiting", HELP.wait], ["data", HELP.data],
        ["memory now", "Memory on the rank's device, in the last line, at the moment when most was allocated."], ["where", "Host, device, threads and process.", "left"],
        ...(hasMessage ? [["message", "The error with which the rank ended.", "left"]] : [])), ranks.map(rank => {
        const newest = rank.samples[rank.samples.length - 1], slow = straggler && straggler.rank === rank.rank, stopped = stoppedS(rank);
        const own = Math.max(0, rank.seconds - rank.wait_s - rank.data_s - rank.no_core_s - (stopped || 0)), noCore = rank.no_core_s / rank.seconds;
        const low = cause => slow && straggler.cause === cause ? "low" : "";
        return row([cell(String(rank.rank) + (slow ? " (slow)" : "")), cell(rank.state, "left " + stateKind(rank.state)),
            cell(shownStep(rank.step)), cell(rank.state === "ended" || rank.state === "failed" ? clock(rank.time) : duration(Math.max(0, state.now - rank.time)) + " ago"),
            cell(share(rank, own), low("compute")), cell(share(rank, rank.no_core_s), noCore > 0.1 && noCore > 2 * least ? "low" : ""),
            ...(hasStopped ? [cell(stopped === null ? "–" : share(rank, stopped), stopped > 0.1 * rank.seconds ? "low" : "")] : []),
            cell(share(rank, rank.wait_s)), cell(share(rank, rank.data_s), low("data")), cell(newest ? bytes(newest[8]) : "–"),
            cell(`${rank.host}, ${rank.device}, ${rank.threads} ${rank.threads === 1 ? "thread" : "threads"}, process ${rank.pid}`, "left where"),
            ...(hasMessage ? [cell(rank.message, "wrap")] : [])]);
    }));
}

const PURPOSE_KINDS = ["c0", "c1", "c2", "c5", "c3", "c4", "c6", "c7"];

function drawMemory() {
    const rank = state.detail && state.detail.ranks[state.rank];
    if (!rank)
        return;
    const samples = rank.samples, xs = samples.map(s => s[1]);
    // Several samples may have the same step, for example during a validation. Keep only the last
    // one of them.
    const kept = samples.filter((s, i) => i + 1 === samples.length || samples[i + 1][1] > s[1]);
    const most = Math.max(0, ...state.detail.ranks.flatMap(r => r.samples.map(s => s[8])));
    drawStack(byId("memory"), kept.map(s => s[1]), state.detail.purposes.map((name, i) => ({name: purposeName(name), kind: PURPOSE_KINDS[i % 8], y: kept.map(s => s[10 + i])})),
        {title: "memory by purpose, rank " + rank.rank, note: kept.length ? "most at once " + bytes(Math.max(...samples.map(s => s[8]))) : "", format: bytes,
            yTicks: byteTicks(most), most});
    const shares = samples.filter(s => s[2] > 0 && s[3] > 0);
    drawStack(byId("waits"), shares.map(s => s[1]), [["computing", "compute", s => s[3] - s[4] - s[5] - s[6] - s[7]], ["no core free", "core", s => s[6]], ["stopped, or on disk", "stop", s => s[7]],
        ["waiting for other ranks", "wait", s => s[4]], ["waiting for data", "data", s => s[5]]]
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
    const kinds = [["gathers", "gather_bytes", "all-gathers", "How often the whole parameters of the unit were gathered from all ranks."],
        ["reduces", "reduce_bytes", "reduce-scatters", "How often the gradients of the unit were added up, each rank keeping its part."],
        ["all_reduces", "all_reduce_bytes", "all-reduces", "How often gradients were added up over the replicas of a mesh."]]
        .filter(([count, size]) => units.some(unit => unit[count] > 0 || unit[size] > 0));
    const means = alignedDurations(units.map(unit => unit.wait_s)), mosts = alignedDurations(units.map(unit => unit.most_wait_s));
    byId("units").hidden = units.length === 0;
    fill(byId("units"), heads(["unit", "The modules whose parameters are gathered together, by the path of the first one.", "left"],
        ...kinds.flatMap(([, , name, help]) => [[name, help], ["bytes", "Bytes that each rank received in these " + name + "."]]),
        ["waiting, mean of ranks", "How long ranks have waited for others in the collectives of this unit, since the run began.", "left"],
        ["most of a rank", "The longest of these times of a rank."]), units.map(unit => {
        const bar = svg("svg", {class: "bar", viewBox: "0 0 90 9", preserveAspectRatio: "none", "aria-hidden": "true"});
        svg("rect", {class: "part wait", x: 0, y: 0, width: (90 * unit.wait_s / most).toFixed(1), height: 9}, bar);
        return row([cell(unit.name, "name"), ...kinds.flatMap(([count, size]) => [cell(shownStep(unit[count])), cell(bytes(unit[size]))]),
            el("td", {class: "left"}, means(unit.wait_s), bar), cell(mosts(unit.most_wait_s))]);
    }));
}

const VERDICTS = {unchecked: "not looked at yet", good: "complete; files and index agree", damaged: "damaged",
    incomplete: "incomplete, or being written", linked: "not looked at: has symbolic links, pipes or the like"};

function drawCheckpoints() {
    const several = new Set(state.checkpoints.map(c => c.run)).size > 1 || state.checkpoints.some(c => c.run === null);
    const mine = state.checkpoints.filter(c => c.run === null || c.run === state.run);
    byId("no-checkpoints").hidden = mine.length > 0;
    byId("checkpoints").hidden = mine.length === 0;
    const run = state.run === null ? null : state.runs.get(state.run);
    fill(byId("checkpoints"), heads(["checkpoint", "Its folder, below the named folders.", "left"], ["verification", "Whether all files are there and agree with their index. The data is not read.", "left"],
        "step", "size", "files", ["took", "How long the save took, in the background, too."], ["to read every byte", "This command reads all data and compares check sums.", "left"]), mine.map(c => {
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

// Return the name of a log that `fsdp launch --log-dir DIR` has written as
// DIR/<id>/attempt_<n>/<rank>/stderr.log: the rank, the stream and the attempt. Any other log has
// its path as its name.
function logName(log) {
    const found = /^(?:(.*)\/)?[^/]+\/attempt_(\d+)\/(\d+)\/(stdout|stderr)\.log$/.exec(log.path);
    if (!found)
        return log.path;
    return (found[1] ? found[1] + ": " : "") + `rank ${found[3]}, ${found[4]}` + (found[2] === "0" ? "" : `, attempt ${Number(found[2]) + 1}`);
}

// Return the names of all logs. If logs of several launches have the same name, their paths are
// added.
function logNames(logs) {
    const names = logs.map(logName), counts = new Map();
    for (const name of names)
        counts.set(name, (counts.get(name) || 0) + 1);
    return logs.map((log, i) => (counts.get(names[i]) > 1 ? `${names[i]}, ${log.path}` : names[i]) + ` (${bytes(log.bytes)})`);
}

// Return the id of the log to show first: one that is not empty and whose path has the longest
// beginning in common with the path of the run's file. If several are equal, it is the newest one.
function chooseLog() {
    const run = state.run === null ? null : state.runs.get(state.run), path = run ? run.file : "";
    const common = log => {
        let i = 0;
        while (i < path.length && path[i] === log.path[i])
            i++;
        return i;
    };
    const sorted = [...state.logs]
        .sort((a, b) => Number(b.bytes > 0) - Number(a.bytes > 0) || common(b) - common(a) || b.time - a.time || (a.path < b.path ? -1 : 1));
    return sorted.length ? sorted[0].id : null;
}

// Return the text as a terminal would show it: after a carriage return, the rest of a line replaces
// its beginning, and escape sequences are not shown.
function plainLog(text) {
    return text.replace(/\x1b\[[0-9;?]*[ -\/]*[@-~]|\x1b\][^\x07]*\x07/g, "").replace(/\r+\n/g, "\n").split("\n")
        .map(line => line.slice(line.replace(/\r+$/, "").lastIndexOf("\r") + 1)).join("\n").replace(/[\x00-\x08\x0b-\x1f\x7f]/g, "");
}

function drawLog(log) {
    const files = byId("log-file"), names = logNames(state.logs);
    byId("no-logs").hidden = state.logs.length > 0;
    files.parentElement.hidden = state.logs.length === 0;
    if (files.wasNames !== names.join("\n")) {
        files.wasNames = names.join("\n");
        files.replaceChildren(...state.logs.map((l, i) => el("option", {value: l.id, title: l.path}, names[i])));
    }
    if (state.log !== null)
        files.value = String(state.log);
    files.title = (state.logs.find(l => l.id === state.log) || {path: ""}).path;
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
    const live = shownRuns().filter(run => isLive(run.state)).length;
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
    state.detail = null;
    state.isChosen = true;
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
    for (const kind of ["pointerover", "focusin", "click"])
        document.addEventListener(kind, showHelp);
    document.addEventListener("keydown", event => {
        if (event.key === "Escape")
            showHelp(event);
    });
    addEventListener("scroll", placeHelp, {capture: true, passive: true});
    addEventListener("resize", () => requestAnimationFrame(draw));
    tick();
}

start();
