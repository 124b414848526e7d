// Finds out where the time of a run goes, which of several runs are slow, and why.
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
    const texts = shown.map(([kind, seconds]) => `• +${duration(seconds)}: ${reasonText(kind, slow, fast, {inTokens, straggler, stopped, lost})}`);
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

// If the ranks are without a core for longer than this share of the time in which they wait for each
// other, the page says that they wait because of it.
const NO_CORE_SHARE = 0.2;

// Return the reason that ranks wait for each other: one of them keeps the others waiting, or none.
function waitReason(slow, known, times) {
    const straggler = known.straggler, stopped = known.stopped;
    if (straggler)
        return `the others wait for rank ${straggler.rank} in ${percent(straggler.wait)} of a step: it is busy ${straggler.times.toPrecision(2)} times as long. ` + stragglerCause(straggler);
    if (stopped)
        return `the others wait for rank ${stopped.rank}, which neither ran nor was ready to run in ${percent(stopped.stopped)} of a step: ` + STOPPED;
    return `the ranks wait for each other for ${times}, though none of them is busy longer: `
        + (known.lost.noCore > NO_CORE_SHARE * known.lost.wait ? "now this one and now that one has no core." : "the sizes of their batches differ, or the network between them is slow.");
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

// Return how the speed of the runs is measured, over their whole time: in tokens per second if all
// runs count tokens, otherwise in seconds per step.
function speedOf(runs) {
    const inTokens = countsTokens(runs), of = run => workOf(run, inTokens) / run.total_s;
    return {inTokens, of, text: run => inTokens ? shortNumber(of(run)) + " tokens/s" : duration(1 / of(run)) + " a step"};
}

const SLOW_TIMES = 1.15; // a run is slow if the fastest run is more than this many times as fast

// Return the runs that are clearly slower than the fastest run of `yardstick`. If these are more than
// half of the runs, the fastest run is an exception: then return only runs that are clearly slower
// than the median of `yardstick`, or the slowest run.
function slowRuns(timed, yardstick, speed) {
    const bySpeed = (a, b) => speed.of(a) - speed.of(b), sorted = [...yardstick].sort(bySpeed), fastest = speed.of(sorted[sorted.length - 1]);
    const slow = [...timed].sort(bySpeed).filter(run => fastest > SLOW_TIMES * speed.of(run));
    if (slow.length <= timed.length / 2)
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

// Return why `run` is slow, as a finding. Add the kinds of its reasons to `explained`.
function slowFinding(run, fast, speed, explained) {
    const why = reasons(run, fast, speed.inTokens), times = (speed.of(fast) / speed.of(run)).toPrecision(2);
    explained.set(run.id, why.kinds);
    return {kind: "slow", run, parts: ["Slow: ", run, ` ${speed.inTokens ? "makes" : "takes"} ${speed.text(run)} over its whole time, `, fast,
        speed.inTokens ? ` ${times} times as many (${speed.text(fast)}).` : ` ${speed.text(fast)}, ${times} times as fast.`, ` Main reason: ${why.main}.`], why: why.texts};
}

// Find the slow ones of the runs `timed`, which have steps and a whole time. Add them to result.slow,
// and findings to result.findings. A run whose loss has diverged can be slow, but the speed of the
// others is not compared with its speed, unless all have diverged.
function addSlow(timed, result, explained) {
    const steady = timed.filter(run => !hasDiverged(run)), yardstick = steady.length ? steady : timed;
    const speed = speedOf(timed), fast = yardstick.reduce((a, b) => speed.of(a) >= speed.of(b) ? a : b);
    const slow = slowRuns(timed, yardstick, speed), faster = timed.filter(run => speed.of(run) > speed.of(fast)), found = [];
    result.slow = new Set(slow.map(run => run.id));
    if (!slow.length && yardstick.length > 1)
        found.push(evenFinding(yardstick, fast, speed));
    for (const run of slow.slice(0, SLOW_FINDINGS))
        found.push(slowFinding(run, fast, speed, explained));
    if (slow.length > SLOW_FINDINGS)
        found.push({kind: "slow", run: slow[SLOW_FINDINGS], parts: ["Slow, too: ", ...listed(slow.slice(SLOW_FINDINGS).map(run => [run])), "."], why: []});
    if (found.length && faster.length)
        found[0].why.push(faster.map(run => run.name).join(", ") + (faster.length > 1 ? " are faster, but their losses have diverged, so the others are not compared with them."
            : " is faster, but its loss has diverged, so the others are not compared with it."));
    result.findings.push(...found);
}
