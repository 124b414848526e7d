// Tests of what the page of `fsdp dashboard` finds in the numbers of runs, and of its axes, without a
// browser. usage: node tests/dashboard/findings.js REPOSITORY. Prints "ok NAME" or "FAIL NAME: why".
// With a second argument, a file with an answer of the server to /runs, it prints what the page finds
// in that answer, and tests nothing.
"use strict";
const fs = require("fs"), path = require("path"), vm = require("vm");

const page = vm.createContext({isFinite, Math});
for (const name of ["charts.js", "slow.js", "findings.js"])
    vm.runInContext(fs.readFileSync(path.join(process.argv[2], "src/dashboard", name), "utf8"), page, {filename: name});

let failed = 0;
function check(name, holds, found) {
    failed += holds ? 0 : 1;
    console.log(holds ? "ok " + name : `FAIL ${name}: ${JSON.stringify(found)}`);
}

// A run of two ranks with 100 steps of `step` seconds. ranks: [wait, data, no core, stopped] of a step.
let ids = 0;
function makeRun(name, more, ranks) {
    const step = more.step_s || 1;
    return {id: ++ids, name, state: "ended", step: 100, steps: 100, seconds: 100 * step, step_s: step, tokens_per_s: 1000 / step, tokens_per_step: 1000, total_s: 100 * step,
        validation_s: 0, validations: 3, save_s: 0, saves: 0, bad_lines: 0, best_loss: null, best_step: null, message: null, host: "here", here: true,
        copied: false, world_size: 2, description: {config: {lr: "0.1"}}, curves: {},
        ranks: (ranks || [[0, 0, 0, 0], [0, 0, 0, 0]]).map((r, i) => [i, 100, 100 * step, ...r.map(v => v === null ? null : 100 * v)]), ...more};
}
function textOf(finding) {
    return finding.parts.map(part => Array.isArray(part) ? part[0] : typeof part === "object" ? `[${part.name}]` : part).join("");
}
function compared(...runs) {
    const result = page.compare(runs);
    return {names: set => runs.filter(run => result[set].has(run.id)).map(run => run.name).join(), found: result.findings,
        text: result.findings.map(f => [textOf(f), ...f.why].join(" | ")).join("\n")};
}
const validated = (name, losses, more) => makeRun(name, {best_loss: Math.min(...losses), best_step: 90, curves: {"eval/loss": {mean: losses}}, ...more});

if (process.argv.length > 3) {
    const answer = fs.readFileSync(process.argv[3], "utf8");
    console.log(compared(...JSON.parse(answer.slice(answer.indexOf("{"))).runs).text);
    process.exit(0);
}

// ---- the best run ----
let r = compared(validated("a", [2.54, 2.53, 2.507]), validated("b", [2.52, 2.504]), validated("c", [2.62, 2.61, 2.6]));
check("losses_0.1_percent_apart_are_practically_the_same", r.names("best") === "a,b" && /practically the same validation loss: \[b\] with 2\.504 .* and \[a\] with 2\.507 .*next is \[c\] with 2\.600/.test(r.text), r.text);
r = compared(validated("a", [2.7, 2.6, 2.5]), validated("b", [2.7, 2.65, 2.55]));
check("losses_2_percent_apart_have_one_best", r.names("best") === "a" && /^Best: \[a\] with a validation loss of 2\.500/.test(r.text), r.text);
r = compared(validated("a", [2.5, 2.58, 2.5, 2.57, 2.5]), validated("b", [2.6, 2.55, 2.53]));
check("noise_widens_the_margin", r.names("best") === "a,b", r.text);
r = compared(validated("a", [9, 1, 9, 1, 9]), validated("b", [1.1, 1.1]));
check("noise_widens_it_to_two_percent_at_most", r.names("best") === "a", r.text);
r = compared(validated("a", [2]), validated("b", [2]));
check("equal_losses_are_said_to_be_equal", /They are equal;/.test(r.text), r.text);
const rate = lr => ({description: {config: {lr}}});
r = compared(validated("a", [2.5], rate("0.001")), validated("b", [2.501], rate("0.002")), validated("c", [2.502], rate("0.001")), validated("d", [5], rate("0.3")));
check("runs_that_are_joint_best_differ_in_order", /In this order, they differ in lr \(0\.001, 0\.002, 0\.001\)\./.test(r.text), r.text);
check("and_the_best_differs_from_the_next_that_is_worse", /a and d differ in lr 0\.001 \(d: 0\.3\)\./.test(r.text), r.text);
check("and_it_says_by_how_much", /next is \[d\] with 5\.000 \(100 % more\)\./.test(r.text), r.text);
r = compared(validated("a", [2.5], {description: {config: {lr: "0.1", "activation-checkpointing": "true"}}}), validated("b", [2.6], {description: {config: {lr: "0.2", "activation-checkpointing": "false"}}}));
check("settings_that_change_no_loss_are_not_named", /a and b differ in lr 0\.1 \(b: 0\.2\)\./.test(r.text), r.text);
const rising = values => compared(makeRun("a", {curves: {"train/loss": {mean: values, not_finite: 0}}})).text;
const low = Array(20).fill(2), high = Array(20).fill(5);
check("a_loss_that_rises_names_its_stretches", /the training loss has risen from 2 \(its lowest stretch\) to 5 \(its last\)\./.test(rising([...low, ...high])), rising([...low, ...high]));
check("one_damaged_line_is_one", /: 1 line of its file of metrics is damaged and/.test(compared(makeRun("a", {bad_lines: 1})).text), "");
check("damaged_lines_are_several", /: 2 lines of its file of metrics are damaged and/.test(compared(makeRun("a", {bad_lines: 2})).text), "");

// ---- slow runs ----
const crowded = [[0.2, 0, 1.2, 0], [0.2, 0, 1.2, 0]], calm = [[0.2, 0, 0.1, 0], [0.2, 0, 0.1, 0]];
r = compared(makeRun("fast", {}, calm), makeRun("slow", {step_s: 2.2}, crowded), makeRun("middle", {step_s: 1.1}, calm), makeRun("slower", {step_s: 1.9}, crowded));
check("a_second_slow_run_is_slow_too", r.names("slow") === "slow,slower" && (r.text.match(/^Slow: /gm) || []).length === 2, r.text);
check("a_run_without_cores_says_so_with_times", /A step takes 2\.20 s for 1,000 tokens: 36 % computing, 55 % without a core/.test(r.text) && /110 s: it was ready to run but had no core for 1\.20 s of a step \(fast: 100 ms\)/.test(r.text), r.text);
r = compared(makeRun("fast", {}, calm), makeRun("slow", {step_s: 2.2}, calm));
check("without_evidence_no_cause_is_named", /no setting that costs time differs, and the files do not say why/.test(r.text) && !/other programs/.test(r.text), r.text);
r = compared(makeRun("fast", {}, calm), makeRun("slow", {step_s: 2.2, host: "there"}, calm));
check("another_host_is_named", /it ran on there, fast on here\./.test(r.text), r.text);
r = compared(makeRun("fast", {}, calm), ...["b", "c", "d"].map(name => makeRun(name, {step_s: 1.5}, calm)));
check("most_runs_are_not_slow", r.names("slow").length === 1, r.names("slow"));
r = compared(...[..."abcdef"].map(name => makeRun(name, {}, calm)), ...[..."uvwxy"].map((name, i) => makeRun(name, {step_s: 3 + i}, calm)));
check("the_fourth_slow_run_is_only_named", r.names("slow") === "u,v,w,x,y" && /Slow, too: \[v\] and \[u\]\./.test(r.text), r.text);

const saving = {description: {config: {lr: "0.1", "activation-checkpointing": "true"}}}, keeping = {description: {config: {lr: "0.1", "activation-checkpointing": "false"}}};
r = compared(makeRun("fast", keeping, calm), makeRun("slow", {step_s: 1.2, ...saving}, calm));
check("a_fifth_longer_is_slow_and_the_setting_is_named", r.names("slow") === "slow" && /it computes 1\.3 times as long: --activation-checkpointing is true \(fast: false\)\. Activation checkpointing computes the forward pass again/.test(r.text), r.text);
r = compared(makeRun("fast", {}, calm), makeRun("b", {step_s: 1.1}, calm));
check("that_no_run_is_slow_is_said", r.names("slow") === "" && /^Speed: no run is slow\. The slowest is \[b\] \(909\.1 tokens\/s over its whole time\), the fastest is \[fast\] \(1000 tokens\/s\)\./m.test(r.text), r.text);
r = compared(makeRun("a", {}, calm), makeRun("b", {}, calm));
check("or_that_all_are_equally_fast", /^Speed: all runs are equally fast \(1000 tokens\/s over the whole time\)\./m.test(r.text), r.text);

// The table of synthetic runs: what one run has more than the other, and what the page says. The fast
// run has 100 steps of 1 s and 1000 tokens, and 10 s outside of steps.
const config = more => ({description: {config: {"batch-size": "4", "evaluation-steps": "0", "save-steps": "0", "async-save": "false", "num-workers": "0", "max-steps": "100", epochs: "inf", ...more}}});
const fast = (more, ranks) => makeRun("fast", {total_s: 110, validations: 0, ...config({}), ...more}, ranks || calm);
const table = [
    // A small batch: a step takes less time and lacks a core for less time than that of the fast run.
    ["batch_1", {step_s: 0.6, total_s: 70, tokens_per_step: 250, ...config({"batch-size": "1"})}, [[0.1, 0, 0.4, 0], [0.1, 0, 0.4, 0]], [[0.2, 0, 0.76, 0], [0.2, 0, 0.76, 0]],
        [/^Slow: \[slow\] makes 357\.1 tokens\/s over its whole time, \[fast\] 2\.5 times as many \(909\.1 tokens\/s\)\. Main reason: a step of only 250 tokens\./m,
            /It took 70\.0 s for 25,000 tokens, fast takes 27\.5 s for as many\./, /35\.0 s: a step has only 250 tokens \(fast: 1,000\), because --batch-size is 1 \(fast: 4\)\. It takes 60 % of the time/,
            /A larger --batch-size makes more/, /7\.50 s: loading/], [/: it was ready to run/, /it computes/]],
    // A small batch, and no core: here the slow run lacks a core for longer than a whole step of the fast one.
    ["batch_1_and_no_core", {step_s: 2.5, total_s: 260, tokens_per_step: 250, ...config({"batch-size": "1"})}, [[0.1, 0, 2, 0], [0.1, 0, 2, 0]], calm,
        [/2 min 30 s: it was ready to run but had no core for 2\.00 s of a step \(fast: 100 ms\)[^|]*\| • \+75\.0 s: a step has only 250 tokens/], []],
    ["validations", {total_s: 200, validations: 12, validation_s: 90, ...config({"evaluation-steps": "5"})}, calm, calm,
        [/Main reason: 12 validations\./, /90\.0 s: 12 validations take 45 % of its time \(fast: 0 validations, 0 %\)\. A larger --evaluation-steps \(it is 5; fast: after each epoch\)/, /--max-validation-samples/],
        [/A step takes/, /loading/, /spends/]],
    ["saves", {total_s: 240, saves: 40, save_s: 130, ...config({"save-steps": "1"})}, calm, calm,
        [/2 min 10 s: saving 40 checkpoints takes 54 % of its time \(fast: 0 checkpoints, 0 %\)\. --async-save .*a larger --save-steps \(it is 1; fast: off\) saves less often/], [/spends/, /A step takes/]],
    ["async_saves", {total_s: 240, saves: 40, save_s: 130, ...config({"save-steps": "1", "async-save": "true"})}, calm, calm, [/a larger --save-steps/], [/--async-save writes/]],
    ["saves_and_validations", {total_s: 240, saves: 40, save_s: 30, validations: 5, validation_s: 100}, calm, calm, [/100 s: 5 validations .*\| • \+30\.0 s: saving 40 checkpoints/], [/A step takes/]],
    ["no_core", {step_s: 2.2, total_s: 230}, [[0.2, 0, 1.3, 0], [0.2, 0, 1.3, 0]], calm, [/2 min 0 s: it was ready to run but had no core for 1\.30 s of a step/, /--threads-per-rank/], [/: it computes/, /validation takes/]],
    ["data_waits", {step_s: 2.2, total_s: 230}, [[0.2, 1.2, 0.1, 0], [0.2, 1.2, 0.1, 0]], calm, [/2 min 0 s: it waits for data for 1\.20 s of a step \(fast: 0 s\)/, /More --num-workers \(now 0\)/], [/had no core/]],
    ["peers", {step_s: 2.2, total_s: 230}, [[1.4, 0, 0.1, 0], [1.4, 0, 0.1, 0]], calm, [/2 min 0 s: the ranks wait for each other for 1\.40 s of a step \(fast: 200 ms\)/], [/: it computes/]],
    ["loading", {steps: 10, step: 10, seconds: 10, total_s: 30}, calm, calm, [/19\.0 s: loading.* take 20\.0 s, 67 % of its time \(fast: 10\.0 s, 9\.1 %\)\. It has made 10 steps, fast 100; in a longer run this weighs less/], []],
    ["nothing_differs", {step_s: 2.2, total_s: 230}, calm, calm, [/2 min 0 s: it computes 2\.7 times as long; no setting that costs time differs, and the files do not say why\./], [/--batch-size/, /had no core/]],
];
for (const [name, more, slowRanks, fastRanks, has, hasNot] of table) {
    const slow = makeRun("slow", {validations: 0, ...config({}), ...more}, slowRanks), steps = slow.steps;
    slow.seconds = steps * slow.step_s;
    r = compared(fast({}, fastRanks), slow);
    const missing = has.filter(pattern => !pattern.test(r.text)), wrong = hasNot.filter(pattern => pattern.test(r.text));
    check("reason_" + name, r.names("slow") === "slow" && !missing.length && !wrong.length && r.found.filter(f => f.kind === "slow").length === 1, [missing.map(String), wrong.map(String), r.text]);
}
r = compared(fast({}), makeRun("slow", {total_s: 530, step_s: 5.2, tokens_per_step: 2000, ...config({"batch-size": "8"})}, [[0.4, 0, 3, 0], [0.4, 0, 3, 0]]));
check("a_step_with_more_tokens_is_compared_for_as_many", /had no core for 1\.50 s in 1000 tokens \(fast: 100 ms\)/.test(r.text) && !/--batch-size/.test(r.text), r.text);
r = compared(fast({}), makeRun("slow", {total_s: 115, tokens_per_s: 5000, ...config({})}, calm));
check("runs_of_the_same_whole_time_are_not_slow", r.names("slow") === "", r.text);
r = compared(fast({tokens_per_step: null, tokens_per_s: null}), makeRun("slow", {total_s: 210, step_s: 2, tokens_per_step: null, tokens_per_s: null, ...config({})}, calm));
check("runs_without_tokens_are_compared_by_steps", /\[slow\] takes 2\.10 s a step over its whole time, \[fast\] 1\.10 s a step, 1\.9 times as fast/.test(r.text) && !/token/.test(r.text), r.text);
r = compared(fast({ranks: []}), makeRun("slow", {total_s: 210, step_s: 2, ranks: []}));
check("without_rank_files_the_page_says_so", /its steps take 2\.00 s \(fast: 1\.00 s\)\. It wrote nothing about its ranks/.test(r.text), r.text);
r = compared(fast({}), makeRun("b", {total_s: 112, validations: 4, validation_s: 40, seconds: 70, ...config({"evaluation-steps": "5"})}, calm));
check("validations_of_a_run_that_is_not_slow_have_advice_too", r.names("slow") === "" && /\[b\] spends 36 % of its time in 4 validations \(fast: 0 %\)\. \| A larger --evaluation-steps \(it is 5\)/.test(r.text), r.text);

// ---- unequal runs, the mean of the loss, and values of settings ----
r = compared(validated("a", [2.5]), validated("b", [3], {step: 40, steps: 40, tokens_per_step: 84}));
check("an_uneven_comparison_is_said_to_be_uneven", /uneven, because the runs have not trained equally long: a 100 steps \(1\.000e\+5|100 k tokens\), b 40 steps \(3360 tokens\)\./.test(r.text), r.text);
check("an_even_one_is_not", !/uneven/.test(compared(validated("a", [2.5]), validated("b", [3])).text), "");
const trained = (name, n, loss, points) => makeRun(name, {curves: {"train/loss": {step: Array.from({length: points || n}, (_, i) => (i + 1) * n / (points || n)), mean: Array(points || n).fill(loss), not_finite: 0}}, steps: n, step: n});
r = compared(trained("a", 60, 2), trained("b", 60, 3));
check("the_mean_of_the_training_loss_is_named", /\[a\] with a training loss of 2\.000 at step 60 \(mean of the last 3 steps\)/.test(r.text), r.text);
r = compared(trained("a", 60, 2), trained("b", 2000, 3, 500));
check("means_of_different_lengths_are_named", /\(mean of the last 3 to 100 steps\)/.test(r.text), r.text);
const words = page.differingSettings([makeRun("a", config({"max-steps": "-1", epochs: "2", "evaluation-steps": "5", "task-prefix": ""})), makeRun("b", config({"task-prefix": "x"})),
    makeRun("c", config({"eval-strategy": "no", "task-prefix": "x"}))]).map(([key, values]) => `${key}: ${values.join(", ")}`).join("; ");
check("values_of_settings_are_words", /max-steps: no limit, 100, 100/.test(words) && /epochs: 2, no limit, no limit/.test(words) && /evaluation-steps: 5, after each epoch, off/.test(words)
    && /task-prefix: not given, x, x/.test(words), words);

// ---- ranks that keep the others waiting ----
const alone = ranks => compared(makeRun("a", {}, ranks)).text;
check("a_stopped_rank_is_named", /rank 1 is busy 2\.0 times as long .*It neither ran nor was ready to run in 50 % of a step/.test(alone([[0.5, 0, 0, 0], [0, 0, 0, 0.5]])), alone([[0.5, 0, 0, 0], [0, 0, 0, 0.5]]));
check("a_rank_without_a_core_is_named", /rank 0 is busy .*It had no core in 60 % of a step/.test(alone([[0, 0, 0.6, null], [0.6, 0, 0, null]])), alone([[0, 0, 0.6, null], [0.6, 0, 0, null]]));
check("a_rank_that_waits_for_data_is_named", /rank 0 is busy .*It waits for data in 60 % of a step/.test(alone([[0, 0.6, 0, 0], [0.6, 0, 0, 0]])), alone([[0, 0.6, 0, 0], [0.6, 0, 0, 0]]));
check("a_stopped_rank_is_named_if_others_are_as_busy", /rank 1 neither ran nor was ready to run in 26 % of a step; the others wait for it/.test(alone([[0.5, 0, 0.4, 0], [0.5, 0, 0.2, 0.26]])), alone([[0.5, 0, 0.4, 0], [0.5, 0, 0.2, 0.26]]));
check("even_ranks_are_not_named", !/rank [01]/.test(alone([[0.3, 0, 0.4, 0.05], [0.3, 0, 0.4, 0.08]])), alone([[0.3, 0, 0.4, 0.05], [0.3, 0, 0.4, 0.08]]));
r = compared(makeRun("fast", {}, calm), makeRun("slow", {step_s: 2}, [[1.2, 0, 0.5, 0], [0.9, 0, 0.3, 0.6]]));
check("a_slow_run_names_its_stopped_rank_once", /the others wait for rank 1/.test(r.text) && (r.text.match(/rank 1/g) || []).length === 1, r.text);
r = compared(makeRun("fast", {}, [[0, 0, 0, 0]]), makeRun("slow", {step_s: 2}, [[0, 0, 0.1, 1]]));
check("a_slow_run_of_one_rank_has_no_others", /100 s: it neither ran nor was ready to run in 50 % of a step \(fast: 0 %\)/.test(r.text) && !/others wait/.test(r.text), r.text);

check("waits_are_not_put_down_to_a_marginal_lack_of_cores", /none of them is busy longer: the sizes of their batches differ/.test(
    compared(makeRun("fast", {}, calm), makeRun("slow", {step_s: 2.4}, [[1.4, 0, 0.2, 0], [1.4, 0, 0.2, 0]])).text), "");
check("but_to_a_clear_one", /none of them is busy longer: now this one and now that one has no core/.test(
    compared(makeRun("fast", {}, calm), makeRun("slow", {step_s: 2.4}, [[1.1, 0, 0.5, 0], [1.1, 0, 0.5, 0]])).text), "");

// ---- a run whose loss has diverged ----
const losses = (first, last) => ({curves: {"train/loss": {mean: [...Array(20).fill(first), ...Array(20).fill(last)], not_finite: last === null ? 20 : 0}}});
for (const [what, last] of [["rises", 9], ["is_not_a_number", null]]) {
    r = compared(makeRun("wild", {step_s: 0.3, ...losses(3, last)}, calm), makeRun("a", losses(3, 2), calm), makeRun("b", {step_s: 1.1, ...losses(3, 2)}, calm));
    check("a_run_whose_loss_" + what + "_makes_no_other_run_slow", r.names("slow") === "" && /^Speed: no run is slow\. The slowest is \[b\] .* the fastest is \[a\] .*wild is faster, but its loss has diverged/m.test(r.text), r.text);
}
r = compared(makeRun("wild", {step_s: 0.3, ...losses(3, 9)}, calm), makeRun("a", losses(3, 2), calm), makeRun("b", {step_s: 2, ...losses(3, 2)}, calm));
check("the_fastest_of_the_others_is_the_measure", r.names("slow") === "b" && /^Slow: \[b\] makes .*, \[a\] 2\.0 times as many/m.test(r.text), r.text);
r = compared(makeRun("wild", {step_s: 3, ...losses(3, 9)}, calm), makeRun("a", losses(3, 2), calm));
check("it_can_be_slow_itself", r.names("slow") === "wild" && !/is faster/.test(r.text), r.text);
r = compared(makeRun("wild", {step_s: 0.3, ...losses(3, 9)}, calm), makeRun("a", losses(3, 2), calm));
check("one_other_run_has_no_measure", r.names("slow") === "" && !/Speed|faster/.test(r.text), r.text);
r = compared(makeRun("wild", losses(3, 9), calm), makeRun("wilder", {step_s: 2, ...losses(3, 9)}, calm));
check("if_all_have_diverged_they_are_compared", r.names("slow") === "wilder", r.text);

// ---- whether runs go on ----
const status = (isPaused, ...states) => page.statusText(states.map(state => ({state})), isPaused, "10:00:00");
check("the_page_is_live_while_a_run_goes_on", status(false, "ended", "training") === "live, 10:00:00" && status(false, "saving a checkpoint") === "live, 10:00:00", status(false, "ended", "training"));
check("but_not_after_the_runs_have_ended", status(false, "ended", "failed", "gone", "silent") === "no run goes on, 10:00:00", status(false, "ended", "failed", "gone", "silent"));
check("nor_without_runs_or_if_it_is_paused", status(false) === "no runs yet, 10:00:00" && status(true, "training") === "paused at 10:00:00", [status(false), status(true, "training")]);

// ---- runs that say no more ----
r = compared(makeRun("a", {state: "gone"}));
check("a_vanished_run_may_go_on_elsewhere", /\[a\] has vanished .*may go on in another container, or on another host that is named here/.test(r.text), r.text);
r = compared(makeRun("a", {state: "gone", copied: true}));
check("a_copied_folder_is_named", /This folder is a copy, so the run may go on where/.test(r.text), r.text);
r = compared(makeRun("a", {state: "silent", host: "node7", here: false}));
check("a_silent_run_elsewhere_names_its_host", /\[a\] is silent .*or goes on on another host \(node7\)/.test(r.text), r.text);
check("a_silent_run_here_is_no_finding", !/silent/.test(compared(makeRun("a", {state: "silent"})).text), "");

// ---- axes and columns ----
const steps = page.ticks(1, 90, 3, false, 1), shown = all => all.map(page.tickNumbers(all)).join(" ");
check("ninety_steps_have_several_ticks", steps.length >= 4, steps);
check("two_steps_have_whole_ticks", page.ticks(1, 3, 5, false, 1).join() === "1,2,3", page.ticks(1, 3, 5, false, 1));
check("powers_are_written_alike", shown([1e-5, 1e-4, 1e-3, 1e-2]) === "1e-5 1e-4 1e-3 1e-2", shown([1e-5, 1e-4, 1e-3, 1e-2]));
check("ticks_have_the_same_decimals", shown([2.5, 2.55, 2.6]) === "2.50 2.55 2.60", shown([2.5, 2.55, 2.6]));
check("times_have_one_unit", [60, 120, 180].map(page.tickTimes([60, 120, 180])).join() === "1 min,2 min,3 min" && [0, 90, 450].map(page.tickTimes([0, 90, 450])).join() === "0:00 min,1:30 min,7:30 min",
    [0, 90, 450].map(page.tickTimes([0, 90, 450])));
check("columns_have_the_same_decimals", [2.6, 2.507, null, 5.0119].map(page.alignedNumbers([2.6, 2.507, null, 5.0119])).join() === "2.600,2.507,–,5.012", "");
check("durations_have_one_unit", [0.891, 1.42].map(page.alignedDurations([0.891, 1.42])).join() === "0.891 s,1.420 s", [0.891, 1.42].map(page.alignedDurations([0.891, 1.42])));
const sizes = [999, 1023, 1023.9 * 1024, 1024, 1.5 * 2 ** 40].map(page.bytes).join();
check("bytes_have_no_exponent", sizes === "999 B,1023 B,1024 KiB,1.00 KiB,1.50 TiB", sizes);
const numbers = [999.4e3, 999.6e3, 999.6e6, 123456].map(page.shortNumber).join();
check("numbers_have_no_exponent", numbers === "999 k,1.00 M,1.00 G,123 k", numbers);
const times = [0.0009996, 0.9996, 0.5, 119.8, 179.6, 7199.7, 3 * 3600 + 59.7 * 60, 200000].map(page.duration).join();
check("no_part_of_a_duration_is_sixty", times === "1.00 ms,1.00 s,500 ms,2 min 0 s,3 min 0 s,2 h 0 min,4 h 0 min,2.31 days", times);
const lines = [["a", [2.537, 2.529, 2.507], false], ["b", [2.616, 2.608, 2.6], false], ["c", [5.2, 5, 5.1], false], ["d", [2.535, 2.52, 2.504], true]]
    .map(([name, values, isBest]) => ({name, shown: values, isBest}));
const near = page.nearLines(lines, false).map(line => line.name).join("");
check("a_far_run_is_left_out_of_the_axis", near === "abd", near);
check("runs_at_one_place_all_stay", page.nearLines(lines.slice(0, 2), false).length === 2, "");
check("a_run_twice_as_far_stays", page.nearLines([{shown: [3, 1], isBest: true}, {shown: [6, 5]}], false).length === 2, "");
process.exit(failed ? 1 : 0);
