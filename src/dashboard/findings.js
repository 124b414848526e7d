// Finds out from the numbers of several runs which run was best, which was slow and why, and what
// went wrong. Each finding is {kind, run, parts, why}. `parts` are texts and runs; a text in an
// array, [text], is bold, and the page shows a run as a link with its name.
"use strict";

// Return the time of a step and its parts, in seconds, as means over the ranks; null if the run has
// no rank files.
function splitOf(run) {
    const ranks = run.ranks.filter(r => r[1] > 0);
    if (!ranks.length)
        return null;
    const sum = i => ranks.reduce((total, r) => total + r[i], 0);
    const steps = sum(1), seconds = sum(2), wait = sum(3), data = sum(4), noCore = sum(5), stopped = sum(6);
    return {step: seconds / steps, wait: wait / steps, data: data / steps, noCore: noCore / steps, stopped: stopped / steps,
        compute: Math.max(0, seconds - wait - data - noCore - stopped) / steps};
}

// Return the parts of a step as text. The times without a core and stopped are left out if they are
// almost 0.
function splitText(split) {
    const part = (seconds, text) => `${percent(seconds / split.step)} ${text}`;
    return [part(split.compute, "computing"), split.noCore > 0.01 * split.step ? part(split.noCore, "without a core") : "",
        split.stopped > 0.01 * split.step ? part(split.stopped, "stopped") : "",
        part(split.wait, "waiting for other ranks"), part(split.data, "waiting for data")].filter(text => text).join(", ");
}

// Return the rank for which the other ranks wait, because it is busy, without a core, or stopped
// for longer than the others; null if there is no such rank.
function stragglerOf(run) {
    const ranks = run.ranks.filter(r => r[1] > 0).map(r => ({rank: r[0], step: r[2] / r[1], wait: r[3] / r[1], data: r[4] / r[1],
        own: (r[2] - r[3] - r[4]) / r[1], noCore: r[5] / r[1], stopped: (r[6] || 0) / r[1]}));
    if (ranks.length < 2)
        return null;
    const busy = r => r.own + r.data;
    const slowest = ranks.reduce((a, b) => busy(a) >= busy(b) ? a : b);
    const others = ranks.filter(r => r !== slowest);
    const mean = of => others.reduce((sum, r) => sum + of(r), 0) / others.length;
    const wait = mean(r => r.wait), more = busy(slowest) - mean(busy);
    if (!(busy(slowest) > 1.2 * mean(busy)) || !(wait > 0.15 * slowest.step))
        return null;
    const cause = [["stopped", slowest.stopped - mean(r => r.stopped)], ["core", slowest.noCore - mean(r => r.noCore)],
        ["data", slowest.data - mean(r => r.data)]].find(([, seconds]) => seconds > 0.5 * more);
    return {rank: slowest.rank, times: busy(slowest) / mean(busy), wait: wait / slowest.step, cause: cause ? cause[0] : "compute",
        stopped: slowest.stopped / slowest.step, noCore: slowest.noCore / slowest.step, data: slowest.data / slowest.step};
}

// Return the rank that is stopped longest, if it is stopped for clearly longer than the others;
// null if there is no such rank. The other ranks wait for it even if their own work takes as long.
function stoppedOf(run) {
    const ranks = run.ranks.filter(r => r[1] > 0 && r[6] !== null).map(r => ({rank: r[0], stopped: r[6] / r[2]}));
    if (!ranks.length)
        return null;
    const most = ranks.reduce((a, b) => a.stopped >= b.stopped ? a : b), others = ranks.filter(r => r !== most);
    const mean = others.reduce((sum, r) => sum + r.stopped, 0) / (others.length || 1);
    return most.stopped > 0.1 && most.stopped > 2 * mean ? most : null;
}

const STOPPED = "something stops its process (a signal, a debugger, a container that is paused), or it waits for its disk or for memory.";

// Return a sentence that says why the rank is slow.
function stragglerCause(straggler) {
    switch (straggler.cause) {
    case "stopped":
        return `It neither ran nor was ready to run in ${percent(straggler.stopped)} of a step: ` + STOPPED;
    case "core":
        return `It had no core in ${percent(straggler.noCore)} of a step: other programs run on its cores, or a container's quota is used up.`;
    case "data":
        return `It waits for data in ${percent(straggler.data)} of a step: look at the disk of its host, and at --num-workers.`;
    default:
        return "Look at the clock of its cores, and at the sizes of its batches.";
    }
}

// Return by which loss the runs are compared: the validation loss if several runs have one,
// otherwise the training loss. `mean` says of how many steps this loss is the mean.
function rankBy(runs) {
    const validated = runs.filter(run => run.best_loss !== null).length;
    if (validated === runs.length || validated > 1)
        return {name: "validation loss", mean: "", curve: "eval/loss", of: run => run.best_loss, at: run => run.best_step};
    return {name: "training loss", mean: ` (${lastMeanText(runs)})`, curve: "train/loss", of: lastLoss, at: run => run.step};
}

// Return how many points of the curve of the training loss are in the last twentieth of a run.
function lastPoints(curve) {
    return Math.max(1, Math.ceil(curve.mean.length / 20));
}

// Return the mean training loss over the last twentieth of a run.
function lastLoss(run) {
    const curve = run.curves && run.curves["train/loss"];
    if (!curve || !curve.mean.length)
        return null;
    const tail = curve.mean.slice(-lastPoints(curve)).filter(v => v !== null);
    return tail.length ? tail.reduce((a, b) => a + b, 0) / tail.length : null;
}

// Return of how many steps lastLoss() is the mean; null if the run has no training loss. A point of
// a curve can be several steps.
function lastLossSteps(run) {
    const curve = run.curves && run.curves["train/loss"];
    if (!curve || !curve.mean.length || !curve.step)
        return null;
    const n = curve.step.length, before = n - lastPoints(curve) - 1;
    return before < 0 ? run.steps : Math.round(curve.step[n - 1] - curve.step[before]);
}

// Say of how many steps the training losses of the runs are means.
function lastMeanText(runs) {
    const counts = runs.map(lastLossSteps).filter(n => n !== null);
    if (!counts.length)
        return "mean of the last twentieth of the steps";
    const least = Math.min(...counts), most = Math.max(...counts);
    return most === 1 ? "of the last step" : least === most ? `mean of the last ${most} steps` : `mean of the last ${least} to ${most} steps`;
}

function settingsOf(run) {
    return run.description && run.description.config || {};
}

// Options that say where files are or how a run is called. They differ between any two runs, so
// they are not compared.
const PLACES = new Set(["output", "metrics", "logging-dir", "run-name", "project", "checkpoint-dir", "profile", "plot",
    "resume", "checkpoint", "overwrite-output", "dashboard", "dashboard-port", "dashboard-stays", "rank-metrics",
    "tracker-command", "report-to", "with-tracking", "offload-dir", "config"]);

// Values of options that stand for something else than a number, and what they mean.
const MEANINGS = {
    "epochs": {inf: "no limit"}, "max-steps": {"-1": "no limit"}, "eval-step-interval": {0: "off"}, "eval-iters": {0: "all"},
    "save-steps": {0: "off"}, "save-total-limit": {0: "no limit"}, "max-grad-norm": {0: "off"}, "clip-value": {0: "off"},
    "max-train-samples": {0: "all"}, "max-validation-samples": {0: "all"}, "max-seq-length": {0: "the limit of the model"},
    "memory-limit": {0: "no limit"}, "lora-r": {0: "off"}, "generate-examples": {0: "off"}, "log-histograms": {0: "off"},
    "threads-per-rank": {0: "automatic"}, "data-seed": {"-1": "as --seed"}, "document-token": {"-1": "none"},
    "val-max-target-length": {0: "as --max-target-length"}, "resume-step": {"-1": "as the checkpoint"},
};

// Return the value of an option of a run as a user reads it. A value that stands for "no limit" or
// the like is shown as these words.
function valueText(run, key) {
    const settings = settingsOf(run), value = settings[key];
    if (value === undefined)
        return "–";
    if (value === "" || value === null || value === "null")
        return "not given";
    if (key === "evaluation-steps" && Number(value) === 0)
        return settings["eval-strategy"] === "no" || settings["validation-data"] === "" ? "off" : "after each epoch";
    return MEANINGS[key] && Object.hasOwn(MEANINGS[key], value) ? MEANINGS[key][value] : String(value);
}

// Return the settings that differ between the runs: [[key, [value of each run]], ...]. The number
// of ranks counts as a setting.
function differingSettings(runs) {
    const known = runs.filter(run => run.description);
    if (known.length < 2)
        return [];
    const keys = new Set(["ranks"]);
    for (const run of known)
        for (const key in settingsOf(run))
            keys.add(key);
    const value = (run, key) => key === "ranks" ? String(run.world_size ?? "–") : valueText(run, key);
    return [...keys].filter(key => !PLACES.has(key) && new Set(known.map(run => value(run, key))).size > 1)
        .map(key => [key, runs.map(run => run.description ? value(run, key) : "?")]);
}

// Settings that change how many rows or tokens a step has.
const WORK = ["batch-size", "gradient-accumulation-steps", "ranks", "max-source-length", "max-target-length", "max-seq-length",
    "packing", "data"];
// Other settings that change how long a step takes.
const COSTLY = ["threads-per-rank", "num-workers", "prefetch", "activation-checkpointing",
    "activation-checkpointing-every", "activation-checkpointing-kind", "activation-offload", "cpu-offload",
    "offload-params", "param-dtype", "reduce-dtype", "sharding-strategy", "auto-wrap-policy", "model",
    "device", "devices", "isa", "backward-prefetch", "forward-prefetch", "limit-all-gathers", "optimizer",
    "dropout", "group-by-length", "train-sampling-strategy"];

// Return those of the settings `keys` that differ, as text; "" if there are none.
function differenceText(slow, fast, keys) {
    const all = differingSettings([slow, fast]).filter(([key]) => keys.includes(key)).sort((a, b) => keys.indexOf(a[0]) - keys.indexOf(b[0]));
    return all.slice(0, 4).map(([key, [a, b]]) => key === "ranks" ? `the number of ranks is ${a} (${fast.name}: ${b})` : `--${key} is ${a} (${fast.name}: ${b})`).join(", ");
}

function countsTokens(runs) {
    return runs.every(run => run.tokens_per_step > 0);
}
// Return what a run has done: its tokens, or its steps.
function workOf(run, inTokens) {
    return inTokens ? run.tokens_per_step * run.steps : run.steps;
}

// Return the seconds that the run has spent on each part of its whole time; null if the whole time
// is not known. The parts of steps are known only with rank files. Without them there is only
// `steps`. `rest` is the time outside of steps, validations and checkpoints, and the warm-up.
function costsOf(run) {
    if (!(run.total_s > 0))
        return null;
    const split = splitOf(run), cost = {validation: run.validation_s, save: run.save_s, steps: run.seconds};
    if (split && split.step > 0) {
        const n = Math.min(run.steps, run.seconds / split.step); // the first step, which warms up, takes longer
        for (const part of STEP_PARTS)
            cost[part] = split[part] * n;
        cost.steps = split.step * n;
    }
    cost.rest = Math.max(0, run.total_s - cost.validation - cost.save - cost.steps);
    return cost;
}
const STEP_PARTS = ["compute", "noCore", "stopped", "wait", "data"];

// Return how many seconds each part costs `slow` more than `fast` would spend on it for as many
// tokens. A step of `slow` may have clearly fewer tokens than a step of `fast`. The costs that do
// not depend on the number of tokens then weigh more, and they are counted as `work`, the cost of
// the small steps. Only the time by which a step takes longer than a whole step of `fast` is divided
// among the parts of the step.
function lossesOf(slow, fast, inTokens) {
    const a = costsOf(slow), b = costsOf(fast), ratio = workOf(slow, inTokens) / workOf(fast, inTokens), lost = {work: 0};
    const parts = a.compute !== undefined && b.compute !== undefined ? STEP_PARTS : ["steps"];
    const scale = inTokens ? slow.tokens_per_step / fast.tokens_per_step : 1, sameSteps = ratio / scale;
    for (const part of ["validation", "save", "rest", ...parts])
        lost[part] = a[part] - b[part] * ratio;
    if (scale < 0.8) {
        const own = parts.filter(part => part !== "data"), above = own.map(part => Math.max(0, a[part] - b[part] * sameSteps)), sum = all => all.reduce((x, y) => x + y, 0);
        const longer = Math.max(0, sum(own.map(part => a[part] - b[part] * sameSteps))), share = Math.min(1, longer / (sum(above) || 1));
        own.forEach((part, i) => {
            lost.work += lost[part] - above[i] * share;
            lost[part] = above[i] * share;
        });
    }
    return lost;
}

const MOST_REASONS = 4;

// Return why `slow` makes fewer tokens in a second than `fast`, the largest loss first: {kinds,
// texts}. A reason is a part of the time that costs `slow` more for as many tokens.
function reasons(slow, fast, inTokens) {
    const lost = lossesOf(slow, fast, inTokens), straggler = stragglerOf(slow), stopped = straggler ? null : stoppedOf(slow);
    const cause = straggler ? {stopped: "stopped", core: "noCore", data: "data", compute: "compute"}[straggler.cause] : stopped && slow.ranks.length > 1 ? "stopped" : null;
    if (cause && lost.wait !== undefined && lost[cause] > 0) { // the waits of the others have the same cause
        lost.wait = Math.max(0, lost.wait) + lost[cause];
        lost[cause] = 0;
    }
    const positive = Object.entries(lost).filter(([, seconds]) => seconds > 0).sort((x, y) => y[1] - x[1]);
    const whole = positive.reduce((sum, [, seconds]) => sum + seconds, 0);
    const shown = positive.filter(([, seconds], i) => i === 0 || seconds > 0.1 * whole).slice(0, MOST_REASONS);
    const texts = shown.map(([kind, seconds]) => `• ${duration(seconds)}: ${reasonText(kind, slow, fast, {inTokens, straggler, stopped, lost})}`);
    const work = workOf(slow, inTokens), done = Math.round(work), ofFast = fast.total_s * work / workOf(fast, inTokens);
    texts.unshift(`It took ${duration(slow.total_s)} for ${counted(grouped(done), inTokens ? "token" : "step", inTokens ? "tokens" : "steps")}, ${fast.name} takes `
        + `${duration(ofFast)} for as many. ${shown.length > 1 ? "What costs it more, and how much:" : "What costs it more:"}`);
    if (shown.some(([kind]) => !["validation", "save", "rest"].includes(kind)))
        texts.push(stepText(slow, fast, inTokens));
    return {kinds: new Set(shown.map(([kind]) => kind)), main: mainReason(shown[0][0], slow), texts};
}

// Return a few words that name a reason of one kind.
function mainReason(kind, run) {
    return {work: `a step of only ${counted(grouped(Math.round(run.tokens_per_step)), "token", "tokens")}`, validation: counted(run.validations, "validation", "validations"),
        save: counted(run.saves, "checkpoint", "checkpoints"), rest: "loading and what else is outside of steps", data: "waiting for data", noCore: "no core was free",
        stopped: "its process was stopped or waited for disk or memory", wait: "ranks that wait for other ranks", compute: "longer computing", steps: "longer steps"}[kind];
}

function grouped(number) {
    return number.toLocaleString("en-US");
}

// Say how long a step of the two runs takes, for how many tokens, and what it consists of.
function stepText(slow, fast, inTokens) {
    const one = run => {
        const split = splitOf(run);
        return `${duration(split ? split.step : run.step_s)}` + (inTokens ? ` for ${counted(grouped(Math.round(run.tokens_per_step)), "token", "tokens")}` : "") + (split ? `: ${splitText(split)}` : "");
    };
    return `A step takes ${one(slow)} (${fast.name}: ${one(fast)}).`;
}

// Return the reason of one kind as text, with the numbers of both runs and the option that helps.
function reasonText(kind, slow, fast, known) {
    const a = splitOf(slow), b = splitOf(fast), there = text => ` (${fast.name}: ${text})`, share = (run, part) => percent(costsOf(run)[part] / run.total_s);
    const scale = known.inTokens ? slow.tokens_per_step / fast.tokens_per_step : 1;
    const ofStep = part => scale < 0.8 || Math.abs(scale - 1) < 0.1 ? `${duration(a[part])} of a step${there(duration(b[part]))}`
        : `${duration(1000 * a[part] / slow.tokens_per_step)} in 1000 tokens${there(duration(1000 * b[part] / fast.tokens_per_step))}`;
    switch (kind) {
    case "work":
        return workReason(slow, fast);
    case "validation":
        return `${counted(slow.validations, "validation takes", "validations take")} ${share(slow, kind)} of its time`
            + there(`${slow.validations || fast.validations ? counted(fast.validations, "validation", "validations") + ", " : ""}${share(fast, kind)}`) + `. ${validationAdvice(slow, fast)}`;
    case "save":
        return `saving ${counted(slow.saves, "checkpoint", "checkpoints")} takes ${share(slow, kind)} of its time`
            + there(`${counted(fast.saves, "checkpoint", "checkpoints")}, ${share(fast, kind)}`) + `. ${saveAdvice(slow, fast)}`;
    case "rest":
        return `loading, the warm-up, and what else is outside of steps, validations and checkpoints take ${duration(costsOf(slow).rest)}, `
            + `${share(slow, kind)} of its time` + there(`${duration(costsOf(fast).rest)}, ${share(fast, kind)}`)
            + (slow.steps < 0.8 * fast.steps ? `. It has made ${counted(slow.steps, "step", "steps")}, ${fast.name} ${fast.steps}; in a longer run this weighs less.` : ".");
    case "data":
        return `it waits for data for ${ofStep(kind)}. More --num-workers (now ${valueText(slow, "num-workers")}), or token files made by 'fsdp tokenize', help.`;
    case "noCore":
        return `it was ready to run but had no core for ${ofStep(kind)}: other programs run on its cores, it has more threads than cores, `
            + "or a container's quota is used up. Fewer ranks (-n), a smaller --threads-per-rank, or fewer programs at once help.";
    case "stopped":
        return `it neither ran nor was ready to run in ${percent(a.stopped / a.step)} of a step${there(percent(b.stopped / b.step))}: ` + STOPPED;
    case "wait":
        return waitReason(slow, known, ofStep(kind));
    case "steps":
        return `its steps take ${duration(slow.step_s)}${there(duration(fast.step_s))}. ${a ? fast.name : "It"} wrote nothing about its ranks, so the page cannot say why`
            + (differenceText(slow, fast, COSTLY) ? "; settings that cost time: " + differenceText(slow, fast, COSTLY) + "." : ".");
    default:
        return computeReason(slow, fast, known.inTokens);
    }
}

// Return the reason that a step of `slow` has fewer tokens, and name the setting that says so.
function workReason(slow, fast) {
    const tokens = run => grouped(Math.round(run.tokens_per_step));
    const settings = differenceText(slow, fast, WORK), more = differingSettings([slow, fast]).map(([key]) => key), step = run => duration(run.step_s);
    const advice = more.includes("batch-size") ? "A larger --batch-size" : more.includes("gradient-accumulation-steps") ? "A larger --gradient-accumulation-steps" : "More rows a step (--batch-size)";
    return `a step has only ${counted(tokens(slow), "token", "tokens")} (${fast.name}: ${tokens(fast)})` + (settings ? `, because ${settings}` : "; no setting of its size differs, so its rows are shorter")
        + `. It takes ${percent(slow.step_s / fast.step_s)} of the time (${step(slow)}, ${fast.name}: ${step(fast)}) for ${percent(slow.tokens_per_step / fast.tokens_per_step)} of the tokens. `
        + `${advice} makes more tokens in a second, since a part of each step costs the same for few rows.`;
}

function validationAdvice(run, other) {
    const key = settingsOf(run)["eval-step-interval"] > 0 ? "eval-step-interval" : "evaluation-steps";
    const is = run.description ? ` (it is ${valueText(run, key)}${other ? `; ${other.name}: ${valueText(other, key)}` : ""})` : "";
    return `A larger --${key}${is} validates less often, and --max-validation-samples validates on fewer rows.`;
}

function saveAdvice(run, other) {
    const is = run.description ? ` (it is ${valueText(run, "save-steps")}${other ? `; ${other.name}: ${valueText(other, "save-steps")}` : ""})` : "";
    return (settingsOf(run)["async-save"] === "true" ? "" : "--async-save writes them while training goes on; ") + `a larger --save-steps${is} saves less often.`;
}

// Return the reason that ranks wait for each other: one of them keeps the others waiting, or none.
function waitReason(slow, known, times) {
    const straggler = known.straggler, stopped = known.stopped;
    if (straggler)
        return `the others wait for rank ${straggler.rank} in ${percent(straggler.wait)} of a step: it is busy ${straggler.times.toPrecision(2)} times as long. ` + stragglerCause(straggler);
    if (stopped)
        return `the others wait for rank ${stopped.rank}, which neither ran nor was ready to run in ${percent(stopped.stopped)} of a step: ` + STOPPED;
    return `the ranks wait for each other for ${times}, though none of them is busy longer: `
        + (known.lost.noCore > 0 ? "now this one and now that one has no core." : "the sizes of their batches differ, or the network between them is slow.");
}

// Return the reason why `slow` computes longer: different settings, or another host. The page does
// not know other reasons.
function computeReason(slow, fast, inTokens) {
    const scale = inTokens ? slow.tokens_per_step / fast.tokens_per_step : 1, isSmall = scale < 0.8;
    const times = splitOf(slow).compute / (splitOf(fast).compute * (isSmall ? 1 : scale));
    const settings = differenceText(slow, fast, COSTLY), again = "activation-checkpointing";
    const twice = settingsOf(slow)[again] === "true" && settingsOf(fast)[again] !== "true" ? " Activation checkpointing computes the forward pass again in the backward pass." : "", moved = slow.host && fast.host && slow.host !== fast.host;
    return `it computes ${times > 0 && isFinite(times) ? times.toPrecision(2) + " times as long" : "long"}`
        + (isSmall ? " in a step" : scale > 1.25 ? " for as many tokens" : "")
        + (settings ? ": " + settings + "." + twice : moved ? `: it ran on ${slow.host}, ${fast.name} on ${fast.host}.`
            : "; no setting that costs time differs, and the files do not say why. Repeat the run to see whether its host was slower at that time.");
}

// Return {from, to} if the loss ends clearly higher than it began, or clearly higher than its
// lowest stretch, otherwise null: two texts with the losses. "Clearly" means by more than the noise
// of the loss. A stretch is a tenth of the values, or eight of them.
function riseOf(values) {
    if (values.length < 20)
        return null;
    const width = Math.max(8, Math.floor(values.length / 10));
    const mean = part => part.reduce((a, b) => a + b, 0) / part.length;
    const last = values.slice(-width), now = mean(last);
    const noise = Math.sqrt(mean(last.map(v => (v - now) ** 2)));
    let least = Infinity;
    for (let i = 0; i + width <= values.length; i += Math.ceil(width / 2))
        least = Math.min(least, mean(values.slice(i, i + width)));
    if (now > 1.3 * least && now - least > 4 * noise / Math.sqrt(width) + 0.05)
        return {from: shortNumber(least) + " (its lowest stretch)", to: shortNumber(now) + " (its last)"};
    return now > 1.3 * values[0] && now - values[0] > 3 * noise ? {from: shortNumber(values[0]) + " (its first value)", to: shortNumber(now) + " (its last stretch)"} : null;
}

function counted(n, one, several) {
    return `${n} ${String(n) === "1" ? one : several}`;
}

function sentence(text) {
    return text.charAt(0).toUpperCase() + text.slice(1);
}

// Return what went wrong in a run. `explained` has the kinds of reasons that are in the finding that
// the run is slow; these are not repeated.
function troubles(run, runs, explained) {
    const found = [];
    if (run.state === "failed")
        found.push({kind: "bad", run, parts: [run, " failed at step " + run.step + "."], why: [run.message || ""]});
    else if (run.state === "gone")
        found.push({kind: "bad", run, parts: [run, " has vanished after step " + run.step + ": its process is not on this host any more, and it did not say that it ended."],
            why: [(run.copied ? "This folder is a copy, so the run may go on where the folder was copied from" : "It may go on in another container, or on another host")
                + ` that is named ${run.host}, too.`]});
    else if (run.state === "silent" && run.host && !run.here)
        found.push({kind: "slow", run, parts: [run, ` is silent after step ${run.step}: it has vanished, or goes on on another host (${run.host}).`],
            why: ["This host cannot see the processes of that one."
                + (run.copied ? " This folder is a copy: what the run has written since is not in it." : "")]});
    const loss = run.curves && run.curves["train/loss"];
    if (loss && loss.not_finite > 0)
        found.push({kind: "bad", run, parts: [run, ": the loss of " + counted(loss.not_finite, "step is", "steps are") + " not a number."], why: []});
    const risen = loss ? riseOf(loss.mean.filter(v => v !== null)) : null;
    if (risen)
        found.push({kind: "bad", run, parts: [run, ": the training loss has risen from " + risen.from + " to " + risen.to + "."],
            why: ["A smaller learning rate, a longer warm-up or --max-grad-norm may help."]});
    const others = runs.filter(other => other !== run && other.total_s > 0 && other.steps > 0), share = (of, seconds) => of.total_s > 0 ? seconds / of.total_s : 0;
    const compared = of => {
        const shares = others.map(other => share(other, of(other))), least = percent(Math.min(...shares)), most = percent(Math.max(...shares));
        return !shares.length ? "." : ` (${shares.length === 1 ? others[0].name : "the other runs"}: ${least === most ? least : least + " to " + most}).`;
    };
    if (share(run, run.validation_s) > 0.3 && !explained.has("validation"))
        found.push({kind: "slow", run, parts: [run, " spends " + percent(share(run, run.validation_s)) + " of its time in " + counted(run.validations, "validation", "validations")
            + compared(other => other.validation_s)], why: [validationAdvice(run)]});
    if (share(run, run.save_s) > 0.2 && !explained.has("save"))
        found.push({kind: "slow", run, parts: [run, " spends " + percent(share(run, run.save_s)) + " of its time saving " + counted(run.saves, "checkpoint", "checkpoints")
            + compared(other => other.save_s)], why: [sentence(saveAdvice(run))]});
    if (run.bad_lines > 0)
        found.push({kind: "bad", run, parts: [run, ": " + counted(run.bad_lines, "line of its file of metrics is", "lines of its file of metrics are") + " damaged and left out."], why: []});
    const straggler = explained.has("wait") ? null : stragglerOf(run);
    if (straggler)
        found.push({kind: "slow", run, parts: [run, `: rank ${straggler.rank} is busy ${straggler.times.toPrecision(2)} times as long as the others, `
            + `which wait for it ${percent(straggler.wait)} of a step.`], why: [stragglerCause(straggler)]});
    const stopped = straggler || explained.has("wait") || explained.has("stopped") ? null : stoppedOf(run);
    if (stopped)
        found.push({kind: "slow", run, parts: [run, `: rank ${stopped.rank} neither ran nor was ready to run in ${percent(stopped.stopped)} of a step`
            + (run.ranks.length > 1 ? "; the others wait for it." : ".")], why: ["Either " + STOPPED]});
    return found;
}

// Return how the speed of the runs is measured, over their whole time: in tokens per second if all
// runs count tokens, otherwise in seconds per step.
function speedOf(runs) {
    const inTokens = countsTokens(runs), of = run => workOf(run, inTokens) / run.total_s;
    return {inTokens, of, text: run => inTokens ? shortNumber(of(run)) + " tokens/s" : duration(1 / of(run)) + " a step"};
}

// Return the noise of a curve: the standard deviation of its last values, each compared with the
// mean of its neighbors. The result is 0 if there are too few values.
function noiseOf(values) {
    const last = values.filter(v => v !== null).slice(-8);
    let sum = 0;
    for (let i = 1; i + 1 < last.length; i++)
        sum += (last[i - 1] - 2 * last[i] + last[i + 1]) ** 2 / 6;
    return last.length > 2 ? Math.sqrt(sum / (last.length - 2)) : 0;
}

// Two losses count as equal if they differ by at most this margin: half a percent or, if it is
// larger, the noise of the best curve, but at most two percent.
function marginOf(run, by) {
    const curve = run.curves && run.curves[by.curve], loss = Math.abs(by.of(run));
    return Math.max(0.005 * loss, Math.min(0.02 * loss, curve ? 2 * noiseOf(curve.mean) : 0));
}

function listed(parts) {
    return parts.flatMap((part, i) => [...(i === 0 ? [] : [i + 1 === parts.length ? " and " : ", "]), ...part]);
}

function sameText(apart, margin, loss) {
    return (apart > 0 ? `They are ${percent(apart / loss)} apart` : "They are equal")
        + `; less than ${percent(margin / loss)} counts as the same, since another --seed changes as much.`;
}

// Settings that change no loss: where tensors are, who computes them, and what is written.
const SAME_LOSS = new Set(["threads-per-rank", "num-workers", "prefetch", "activation-checkpointing", "activation-checkpointing-every",
    "activation-checkpointing-kind", "activation-offload", "cpu-offload", "offload-params", "sharding-strategy", "auto-wrap-policy",
    "backward-prefetch", "forward-prefetch", "limit-all-gathers", "async-save", "save-steps", "save-total-limit", "save-strategy"]);

// Say in which settings two runs differ, or several runs whose order the reader knows. Settings that
// change no loss are left out. Return "" if no setting differs.
function differenceOf(runs) {
    const changed = differingSettings(runs).filter(([key]) => !SAME_LOSS.has(key)).slice(0, 4);
    if (!changed.length)
        return "";
    return runs.length === 2
        ? `${runs[0].name} and ${runs[1].name} differ in ${changed.map(([key, [a, b]]) => `${key} ${a} (${runs[1].name}: ${b})`).join(", ")}.`
        : `In this order, they differ in ${changed.map(([key, values]) => `${key} (${values.join(", ")})`).join(", ")}.`;
}

// Say that the runs have not trained equally long; "" if they have. Steps count first, then tokens.
function unevenText(runs) {
    const inTokens = countsTokens(runs), tokens = run => workOf(run, true), isUneven = (of, times) => Math.max(...runs.map(of)) > times * Math.min(...runs.map(of));
    if (!isUneven(run => run.step, 1.02) && !(inTokens && isUneven(tokens, 1.25)))
        return "";
    const one = run => `${run.name} ${counted(run.step, "step", "steps")}` + (inTokens ? ` (${shortNumber(tokens(run))} tokens)` : "");
    const range = of => `${shortNumber(Math.min(...runs.map(of)))} to ${shortNumber(Math.max(...runs.map(of)))}`;
    return "The comparison is uneven, because the runs have not trained equally long: "
        + (runs.length > 6 ? `${range(run => run.step)} steps` + (inTokens ? `, ${range(tokens)} tokens.` : ".") : runs.map(one).join(", ") + ".");
}

// Return the finding about the best runs. `sorted` has at least two runs, the best one first.
function bestFinding(sorted, measured, by, result) {
    const first = sorted[0], margin = marginOf(first, by);
    const same = sorted.filter(run => by.of(run) - by.of(first) <= margin), next = sorted[same.length];
    const going = sorted.filter(run => !["ended", "failed", "gone", "silent"].includes(run.state));
    const shown = alignedNumbers(sorted.map(by.of)), loss = run => ` with ${shown(by.of(run))} at step ${by.at(run)}`;
    const more = next ? (by.of(next) - by.of(first)) / Math.abs(by.of(first)) : 0;
    const ending = next ? ["; next is ", next, ` with ${shown(by.of(next))}${isFinite(more) ? ` (${percent(more)} more)` : ""}.`] : ["."];
    result.best = new Set(same.map(run => run.id));
    return {kind: "best", run: first,
        parts: same.length > 1 ? [`Best, with practically the same ${by.name}${by.mean}: `, ...listed(same.slice(0, 5).map(run => [run, loss(run)])),
            same.length > 5 ? ` (and ${same.length - 5} more)` : "", ...ending]
            : ["Best: ", first, ` with a ${by.name} of ${shown(by.of(first))} at step ${by.at(first)}${by.mean}`, ...ending],
        why: [same.length > 1 ? sameText(by.of(same[same.length - 1]) - by.of(first), margin, Math.abs(by.of(first))) : "",
            same.length > 1 ? differenceOf(same.slice(0, 5)) : "",
            next ? differenceOf([first, next]) : "",
            unevenText(sorted),
            new Set(sorted.filter(run => run.description).map(run => settingsOf(run)["validation-data"])).size > 1 && by.name === "validation loss"
                ? "The runs validate on different data, so their losses may not compare." : "",
            sorted.length < measured.length ? `${measured.length - sorted.length} without validation could not be compared.` : "",
            going.length ? "Some runs still go on." : ""]};
}

const SLOW_TIMES = 1.15; // how many times as fast the fastest run is at least, if a run is slow

// Return the runs that are clearly slower than the fastest one. If these are more than half of the
// runs, the fastest run is an exception: then return only runs that are clearly slower than the
// median, or the slowest one.
function slowRuns(timed, speed) {
    const sorted = [...timed].sort((a, b) => speed.of(a) - speed.of(b)), fastest = speed.of(sorted[sorted.length - 1]);
    const slow = sorted.filter(run => fastest > SLOW_TIMES * speed.of(run));
    if (slow.length <= sorted.length / 2)
        return slow;
    const middle = speed.of(sorted[sorted.length >> 1]), slower = slow.filter(run => middle > SLOW_TIMES * speed.of(run));
    return slower.length ? slower : slow.slice(0, 1);
}

// Return the finding that no run is slow, with the speeds of the slowest and the fastest run.
function evenFinding(timed, fast, speed) {
    const slowest = timed.reduce((a, b) => speed.of(a) < speed.of(b) ? a : b);
    return {kind: "", run: fast, parts: speed.of(fast) < 1.01 * speed.of(slowest) ? [`Speed: all runs are equally fast (${speed.text(fast)} over the whole time).`]
        : ["Speed: no run is slow. The slowest is ", slowest, ` (${speed.text(slowest)} over its whole time), the fastest is `, fast, ` (${speed.text(fast)}).`], why: []};
}

const SLOW_FINDINGS = 3; // maximum number of slow runs that are explained; the other slow runs are only named

function compare(runs) {
    const found = [], explained = new Map(), measured = runs.filter(run => run.steps > 0);
    const result = {best: new Set(), slow: new Set(), findings: found};
    if (measured.length > 1) {
        const by = rankBy(measured), sorted = measured.filter(run => by.of(run) !== null).sort((a, b) => by.of(a) - by.of(b));
        if (sorted.length > 1)
            found.push(bestFinding(sorted, measured, by, result));
    }
    const timed = measured.filter(run => run.total_s > 0);
    if (timed.length > 1) {
        const speed = speedOf(timed), fast = timed.reduce((a, b) => speed.of(a) >= speed.of(b) ? a : b);
        const slow = slowRuns(timed, speed);
        result.slow = new Set(slow.map(run => run.id));
        if (!slow.length)
            found.push(evenFinding(timed, fast, speed));
        for (const run of slow.slice(0, SLOW_FINDINGS)) {
            const why = reasons(run, fast, speed.inTokens), times = (speed.of(fast) / speed.of(run)).toPrecision(2);
            explained.set(run.id, why.kinds);
            found.push({kind: "slow", run, parts: ["Slow: ", run, ` ${speed.inTokens ? "makes" : "takes"} ${speed.text(run)} over its whole time, `, fast,
                speed.inTokens ? ` ${times} times as many (${speed.text(fast)}).` : ` ${speed.text(fast)}, ${times} times as fast.`, ` Main reason: ${why.main}.`], why: why.texts});
        }
        if (slow.length > SLOW_FINDINGS)
            found.push({kind: "slow", run: slow[SLOW_FINDINGS], parts: ["Slow, too: ", ...listed(slow.slice(SLOW_FINDINGS).map(run => [run])), "."], why: []});
    }
    for (const run of runs)
        found.push(...troubles(run, runs, explained.get(run.id) || new Set()));
    if (measured.length === 1) {
        const run = measured[0], split = splitOf(run);
        found.unshift({kind: "", run, parts: [run, `: step ${run.step}`, run.best_loss !== null
            ? `, best validation loss ${shortNumber(run.best_loss)} at step ${run.best_step}`
            : `, training loss ${shortNumber(lastLoss(run))} (${lastMeanText([run])})`, `, ${duration(run.step_s)} a step.`],
            why: split ? [`Of the time of a step: ${splitText(split)}.`] : []});
    }
    return result;
}
