/* Flags of `fsdp train` and `fsdp plan` for units, controls, optimizer and clipping: each changes
 * the run, or its plan, in the same way as its argument in PyTorch, and nothing else. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "src/autograd/autograd.h"
#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/fsdp/observer.h"
#include "src/plan/memory_limit.h"
#include "src/plan/plan.h"
#include "src/train/trainer_internal.h"
#include "tests/test.h"
#include "tests/train/small_job.h"

enum {
    STEPS = 3,
    WORDS = 64,
    CONFIG = 1024
};

typedef struct curve {
    double loss[STEPS], norm[STEPS], lr[STEPS];
} curve;

/* Runs three steps of the model in `dir` with `flags`. */
static void run(fsdp_test *t, const char *dir, const char *flags, curve *c)
{
    char words[JOB_PATH + 600];
    fsdp_train_result result;
    snprintf(words, sizeof words,
             "--no-save-model --no-run-validation --max-steps %d --metrics "
             "%s/m.jsonl %s",
             STEPS, dir, flags);
    fsdp_status status = job_train(t->group, dir, words, &result);
    if (status != FSDP_OK)
        FAIL("%s: %s", flags, fsdp_last_error());
    if (t->rank == 0) {
        job_read_steps(t, dir, "loss", c->loss, STEPS);
        CHECK_HERE();
        job_read_steps(t, dir, "grad_norm", c->norm, STEPS);
        CHECK_HERE();
        job_read_steps(t, dir, "lr", c->lr, STEPS);
        CHECK_HERE();
    }
    if (t->group)
        ASSERT_OK(fsdp_broadcast(t->group, c, sizeof *c, 0));
}

static bool same(const curve *a, const curve *b)
{
    return memcmp(a, b, sizeof *a) == 0;
}

static void make_llama(fsdp_test *t, char dir[JOB_PATH])
{
    job_make_files_of(t, job_llama, job_write_causal_rows, dir);
}

/* The same configuration with embedding and head tied. */
static void tie(fsdp_test *t, const char *untied, char config[CONFIG])
{
    snprintf(config, CONFIG, "%s", untied);
    char *at = strstr(config, "\"tie_word_embeddings\": false");
    ASSERT(at);
    memcpy(strchr(at, 'f'), "true ", 5);
}

static fsdp_status parse(const char *dir, const char *flags, fsdp_train_config *config,
                         fsdp_options **options)
{
    static _Thread_local char text[1024];
    char *argv[WORDS], *rest = text;
    int argc = 0;
    snprintf(text, sizeof text,
             "plan --model %s/model --data - --no-save-model --max-seq-length 16 --from-config %s",
             dir, flags);
    for (char *word; argc < WORDS - 1 && (word = strsep(&rest, " "));)
        if (*word)
            argv[argc++] = word;
    argv[argc] = NULL;
    *config = (fsdp_train_config){0};
    return fsdp_options_parse(fsdp_train_options(), argc, argv, config, options);
}

/* The plan of a run on two ranks. */
static fsdp_status plan_of(const char *dir, const char *flags, fsdp_plan **plan)
{
    fsdp_train_config config;
    fsdp_options *options;
    FSDP_TRY(parse(dir, flags, &config, &options));
    fsdp_status status = fsdp_plan_create(&config, 2, 2, plan);
    fsdp_options_destroy(options);
    return status;
}

static const fsdp_plan_unit *unit_of(const fsdp_plan *plan, const char *name)
{
    for (size_t i = 0; i < plan->n_units; i++)
        if (strcmp(plan->units[i].name, name) == 0)
            return &plan->units[i];
    return NULL;
}

/* --- the optimizer --- */

/* Compared with Adafactor without the option; two of them do nothing alone. */
TEST_RANKS(every_option_of_adafactor_counts, 1)
{
    static const struct {
        const char *base, *flag;
    } rows[] = {{"--lr 0.01", "--scale-parameter"},
                {"--lr 0.01", "--clip-threshold 0.25"},
                {"--lr 0.01", "--decay-rate -0.3"},
                {"--lr 0.01", "--adafactor-eps1 1e-2"},
                {"--lr 0.01 --scale-parameter", "--adafactor-eps2 1"},
                {"--lr 0.01", "--adafactor-beta1 0.5"},
                {"", "--relative-step"},
                {"--relative-step", "--warmup-init"}};
    char dir[JOB_PATH], line[200];
    curve without, with;
    make_llama(t, dir);
    CHECK_HERE();
    for (size_t i = 0; i < FSDP_LENGTH(rows); i++) {
        snprintf(line, sizeof line, "--optimizer adafactor %s", rows[i].base);
        run(t, dir, line, &without);
        CHECK_HERE();
        snprintf(line, sizeof line, "--optimizer adafactor %s %s", rows[i].base, rows[i].flag);
        run(t, dir, line, &with);
        CHECK_HERE();
        if (without.loss[0] != with.loss[0] || without.loss[STEPS - 1] == with.loss[STEPS - 1])
            FAIL("%s changes nothing", rows[i].flag);
    }
}

/* min(1e-2, 1 / sqrt(t)), with warmup_init min(1e-6 t, 1 / sqrt(t)). */
TEST_RANKS(adafactor_may_choose_the_rate_itself, 1)
{
    char dir[JOB_PATH];
    curve c;
    make_llama(t, dir);
    CHECK_HERE();
    run(t, dir, "--optimizer adafactor --relative-step", &c);
    CHECK_HERE();
    for (int i = 0; i < STEPS; i++)
        ASSERT_NEAR(c.lr[i], 1e-2, 1e-12);
    run(t, dir, "--optimizer adafactor --relative-step --warmup-init", &c);
    CHECK_HERE();
    for (int i = 0; i < STEPS; i++)
        ASSERT_NEAR(c.lr[i], 1e-6 * (i + 1), 1e-15);
}

/* If every name contains a word, no parameter decays. The T5's vectors are its norms, and the name
 * of its bias contains "bias". */
TEST_RANKS(parameters_may_be_without_decay, 2)
{
    char dir[JOB_PATH];
    curve all, none, by_dot, transformers, by_word;
    job_make_files(t, dir);
    CHECK_HERE();
    run(t, dir, "--weight-decay 0.9", &all);
    CHECK_HERE();
    run(t, dir, "--weight-decay 0", &none);
    CHECK_HERE();
    run(t, dir, "--weight-decay 0.9 --no-decay .", &by_dot);
    CHECK_HERE();
    run(t, dir, "--weight-decay 0.9 --no-decay auto", &transformers);
    CHECK_HERE();
    run(t, dir, "--weight-decay 0.9 --no-decay LAYER_NORM,bias", &by_word);
    CHECK_HERE();
    ASSERT(!same(&all, &none) && same(&none, &by_dot));
    ASSERT(same(&transformers, &by_word));
    ASSERT(!same(&transformers, &all) && !same(&transformers, &none));
}

TEST_RANKS(groups_without_decay_are_of_any_optimizer, 1)
{
    static const char *const optimizers[] = {"sgd", "adam", "adafactor"};
    char dir[JOB_PATH], line[200];
    curve all, none, grouped;
    make_llama(t, dir);
    CHECK_HERE();
    for (size_t i = 0; i < FSDP_LENGTH(optimizers); i++) {
        const char *name = optimizers[i];
        snprintf(line, sizeof line, "--optimizer %s --lr 0.1 --weight-decay 0.5", name);
        run(t, dir, line, &all);
        CHECK_HERE();
        snprintf(line, sizeof line, "--optimizer %s --lr 0.1", name);
        run(t, dir, line, &none);
        CHECK_HERE();
        snprintf(line, sizeof line, "--optimizer %s --lr 0.1 --weight-decay 0.5 --no-decay norm",
                 name);
        run(t, dir, line, &grouped);
        CHECK_HERE();
        if (same(&grouped, &all) || same(&grouped, &none))
            FAIL("--no-decay norm with %s changes nothing", name);
    }
}

/* --- gradients --- */

/* With mean-of-means the default factor is the number of micro-batches. The printed loss does not
 * depend on it. */
TEST_RANKS(gradients_are_divided_by_the_given_factor, 2)
{
    static const char means[] = "--loss-reduction mean-of-means --gradient-accumulation-steps 2";
    char dir[JOB_PATH], line[200];
    curve base, four, eight;
    make_llama(t, dir);
    CHECK_HERE();
    run(t, dir, means, &base);
    CHECK_HERE();
    snprintf(line, sizeof line, "%s --gradient-divide-factor 4", means);
    run(t, dir, line, &four);
    CHECK_HERE();
    snprintf(line, sizeof line, "%s --gradient-divide-factor 8", means);
    run(t, dir, line, &eight);
    CHECK_HERE();
    ASSERT(same(&base, &four));
    ASSERT(base.loss[0] == eight.loss[0]);
    ASSERT_NEAR(eight.norm[0], base.norm[0] / 2, 1e-12);
}

/* A divisor below float32's range makes gradients infinite under a finite loss. */
TEST(a_norm_that_is_not_finite_ends_the_run_unless_asked_otherwise)
{
    static const char words[] = "--no-save-model --max-steps 1 --gradient-divide-factor 1e-39";
    char dir[JOB_PATH], line[200];
    fsdp_train_result result;
    fsdp_group *one;
    make_llama(t, dir);
    CHECK_HERE();
    ASSERT_OK(fsdp_init_process_group(NULL, &one));
    fsdp_status status = job_train(one, dir, words, &result);
    fsdp_destroy_process_group(one);
    ASSERT_ERROR(status, FSDP_ERR_NUMERIC, "step 1: the norm of gradients is NaN: that of model.");
    snprintf(line, sizeof line, "%s --no-run-validation --no-error-if-nonfinite", words);
    job_train_alone(t, dir, line, &result);
    CHECK_HERE();
    ASSERT_INT(result.steps, 1);
}

/* --- units --- */

/* The numbers do not depend on how parameters are gathered. */
TEST_RANKS(how_parameters_travel_changes_no_bit, 2)
{
    static const char *const flags[] = {"--explicit-prefetching",
                                        "--forward-prefetch-depth 3 --no-limit-all-gathers",
                                        "--backward-prefetch-depth 1",
                                        "--blocks-per-unit 2",
                                        "--blocks-per-unit 3 --explicit-prefetching",
                                        "--joint-units T5Block",
                                        "--joint-units T5LayerFF --blocks-per-unit 2",
                                        "--no-reshard-after-backward",
                                        "--set-is-last-backward",
                                        "--min-num-params 1000 --exclude-wrap-modules T5Stack",
                                        "--min-num-params 1000 --force-leaf-modules T5Block"};
    char dir[JOB_PATH], line[200];
    curve base, c;
    job_make_files(t, dir);
    CHECK_HERE();
    run(t, dir, "--gradient-accumulation-steps 2 --bf16", &base);
    CHECK_HERE();
    for (size_t i = 0; i < FSDP_LENGTH(flags); i++) {
        snprintf(line, sizeof line, "--gradient-accumulation-steps 2 --bf16 %s", flags[i]);
        run(t, dir, line, &c);
        CHECK_HERE();
        if (!same(&base, &c))
            FAIL("%s changes the numbers", flags[i]);
    }
}

/* A unit of embedding and head is read by the head's backward, although the embedding's own unit is
 * not. */
TEST_RANKS(joint_units_change_no_bit, 2)
{
    static const char *const units[] = {"model.embed_tokens,lm_head", "model.layers.*.mlp,lm_head",
                                        "LlamaDecoderLayer,lm_head --blocks-per-unit 2"};
    char dir[JOB_PATH], line[200];
    curve base, c;
    make_llama(t, dir);
    CHECK_HERE();
    run(t, dir, "--bf16", &base);
    CHECK_HERE();
    for (size_t i = 0; i < FSDP_LENGTH(units); i++) {
        snprintf(line, sizeof line, "--bf16 --joint-units %s", units[i]);
        run(t, dir, line, &c);
        CHECK_HERE();
        if (!same(&base, &c))
            FAIL("%s changes the numbers", line);
    }
}

/* The norm adds parts by rank, so in another order. */
TEST_RANKS(placements_change_only_the_order_of_the_norm, 2)
{
    char dir[JOB_PATH];
    curve base, c;
    make_llama(t, dir);
    CHECK_HERE();
    run(t, dir, "", &base);
    CHECK_HERE();
    run(t, dir, "--shard-placement *_proj.weight:-1,lm_head.weight:1", &c);
    CHECK_HERE();
    for (int i = 0; i < STEPS; i++) {
        ASSERT(base.loss[i] == c.loss[i]);
        ASSERT_NEAR(base.norm[i], c.norm[i], 1e-12 * base.norm[i]);
    }
}

/* The parameters are frozen, so that each rank has the same ones. */
TEST_RANKS(what_is_ignored_trains_as_what_is_frozen, 2)
{
    static const char *const flags[] = {"--ignored-modules lm_head,model.layers.0.mlp",
                                        "--ignored-modules lm_head,LlamaMLP",
                                        "--ignored-states *.mlp.*,lm_head.weight",
                                        "--ignored-modules lm_head,model.layers.[01].mlp --bf16"};
    static const char frozen[] = "--frozen-prefixes lm_head,model.layers.0.mlp,model.layers.1.mlp";
    char dir[JOB_PATH], line[300];
    curve base[2], c;
    make_llama(t, dir);
    CHECK_HERE();
    for (int bf16 = 0; bf16 < 2; bf16++) {
        snprintf(line, sizeof line, "%s %s", frozen, bf16 ? "--bf16" : "");
        run(t, dir, line, &base[bf16]);
        CHECK_HERE();
    }
    for (size_t i = 0; i < FSDP_LENGTH(flags); i++) {
        snprintf(line, sizeof line, "%s %s", frozen, flags[i]);
        run(t, dir, line, &c);
        CHECK_HERE();
        if (!same(&base[strstr(flags[i], "bf16") != NULL], &c))
            FAIL("%s changes the numbers", flags[i]);
    }
}

/* A model that is in bfloat16 except for one block differs from both kinds of models. */
TEST_RANKS(a_unit_may_have_a_precision_of_its_own, 2)
{
    char dir[JOB_PATH];
    curve f32, bf16, one, all;
    make_llama(t, dir);
    CHECK_HERE();
    run(t, dir, "", &f32);
    CHECK_HERE();
    run(t, dir, "--bf16 --reduce-dtype bf16", &bf16);
    CHECK_HERE();
    run(t, dir, "--unit-mp-policy model.layers.0:bf16:bf16:float32", &one);
    CHECK_HERE();
    run(t, dir, "--unit-mp-policy *:bf16:bf16", &all);
    CHECK_HERE();
    ASSERT(!same(&one, &f32) && !same(&one, &bf16));
    ASSERT(same(&all, &bf16));
    run(t, dir, "--unit-mp-policy *.0:bf16:bf16:float32,*.0:float32,*.1:float32", &all);
    CHECK_HERE();
    ASSERT(same(&all, &one)); /* the first match counts */
}

/* As in PyTorch, an RMS norm in float32 converts the half-precision output of a block to float32,
 * so the head after it needs no OUTPUT_DTYPE; a layer norm does not. */
TEST_RANKS(an_rms_norm_in_float32_promotes_what_a_block_returns, 2)
{
    static const struct {
        const char *config, *blocks, *flags;
        bool ties;
    } rows[] = {{job_t5, "decoder.block.1", "", true},
                {job_t5, "*.block.*", "", false},
                {job_t5, "*.block.*", "--activation-checkpointing", true},
                {job_llama, "model.layers.1", "", true},
                {job_llama, "model.layers.*", "", false}};
    char dir[JOB_PATH], config[CONFIG], line[200];
    curve promoted, cast, f32;
    for (size_t i = 0; i < FSDP_LENGTH(rows); i++) {
        const bool is_t5 = rows[i].config == job_t5;
        tie(t, rows[i].config, config);
        CHECK_HERE();
        job_make_files_of(t, rows[i].ties ? config : rows[i].config,
                          is_t5 ? job_write_rows : job_write_causal_rows, dir);
        CHECK_HERE();
        run(t, dir, rows[i].flags, &f32);
        CHECK_HERE();
        snprintf(line, sizeof line, "--unit-mp-policy %s:bf16:bf16:float32 %s", rows[i].blocks,
                 rows[i].flags);
        run(t, dir, line, &cast);
        CHECK_HERE();
        snprintf(line, sizeof line, "--unit-mp-policy %s:bf16:bf16 %s", rows[i].blocks,
                 rows[i].flags);
        run(t, dir, line, &promoted);
        CHECK_HERE();
        if (t->rank == 0 && (same(&promoted, &f32) || !same(&promoted, &cast)))
            FAIL("%s: not as cast by OUTPUT_DTYPE", line);
    }
    job_make_files_of(t, job_bert, job_write_classified_rows, dir);
    CHECK_HERE();
    if (t->rank == 0) {
        fsdp_plan *plan;
        ASSERT_ERROR(plan_of(dir, "--unit-mp-policy bert.encoder.layer.1:bf16", &plan),
                     FSDP_ERR_INVALID, "linear: x is bfloat16 but w is float32: where units");
    }
}

static void apply_linear(fsdp_scope *s, fsdp_module *self, const fsdp_args *in, fsdp_args *out)
{
    *out = (fsdp_args){.t = {fsdp_linear_forward(s, self, in->t[0])}, .n = 1};
}

/* The dtype of the root's output with these flags for a float32 input. */
static fsdp_status root_output(const char *dir, const char *flags, fsdp_dtype *dtype)
{
    fsdp_train_config config;
    fsdp_options *options;
    fsdp_fully_shard_options shard;
    fsdp_device *device = NULL;
    fsdp_module *root = NULL;
    fsdp_scope *s = NULL;
    FSDP_TRY(parse(dir, flags, &config, &options));
    fsdp_train_config_shard_options(&config, &shard);
    fsdp_options_destroy(options);
    fsdp_status status = fsdp_device_create(NULL, &device);
    if (status == FSDP_OK)
        status = fsdp_linear_create(3, 2, false, (fsdp_init){.std = 1.0f}, &root);
    if (status == FSDP_OK)
        status = fsdp_fully_shard(root, NULL, device, &shard);
    if (status == FSDP_OK)
        status = fsdp_module_init(root, 1);
    if (status == FSDP_OK)
        status = fsdp_scope_open(device, NULL, NULL, &s);
    if (status == FSDP_OK) {
        fsdp_tensor *x = fsdp_new(s, FSDP_DTYPE_F32, 2, (const int64_t[]){1, 3});
        fsdp_args out = fsdp_module_call(s, root, apply_linear, (fsdp_args){.t = {x}, .n = 1});
        status = fsdp_scope_status(s);
        *dtype = status == FSDP_OK ? fsdp_tensor_dtype(out.t[0]) : FSDP_DTYPE_U8;
        fsdp_scope_close(s);
    }
    fsdp_module_destroy(root);
    fsdp_device_destroy(device);
    return status;
}

/* Models here are called without tensors, so this needs a module of the test's own. */
TEST(the_root_casts_its_inputs_as_flags_say)
{
    static const struct {
        const char *flags;
        bool casts;
    } rows[] = {{"--bf16", true},
                {"--bf16 --no-cast-forward-inputs", false},
                {"--bf16 --no-cast-forward-inputs --cast-root-forward-inputs", true},
                {"--mixed-precision bfSixteen", true},
                {"--mixed-precision bfSixteen --no-cast-root-forward-inputs", false}};
    char dir[JOB_PATH];
    make_llama(t, dir);
    CHECK_HERE();
    for (size_t i = 0; i < FSDP_LENGTH(rows); i++) {
        fsdp_dtype dtype = FSDP_DTYPE_U8;
        fsdp_status status = root_output(dir, rows[i].flags, &dtype);
        if (!rows[i].casts) {
            ASSERT_ERROR(status, FSDP_ERR_INVALID, "x is float32 but w is bfloat16");
            continue;
        }
        ASSERT_OK(status);
        ASSERT_INT(dtype, FSDP_DTYPE_BF16);
    }
}

static void check_plans(fsdp_test *t, const char *dir)
{
    fsdp_plan *plan;
    ASSERT_OK(plan_of(dir, "", &plan));
    const size_t n_units = plan->n_units;
    ASSERT(unit_of(plan, "lm_head"));
    ASSERT_INT(unit_of(plan, "model.layers.1")->all_gathers, 2);
    fsdp_plan_destroy(plan);

    ASSERT_OK(plan_of(dir, "--blocks-per-unit 2", &plan));
    ASSERT_INT(plan->n_units, n_units - 1);
    ASSERT_INT(unit_of(plan, "model.layers.0")->modules, 2);
    fsdp_plan_destroy(plan);

    ASSERT_OK(plan_of(dir, "--joint-units model.embed_tokens,lm_head", &plan));
    ASSERT_INT(plan->n_units, n_units - 1);
    ASSERT_INT(unit_of(plan, "model.embed_tokens")->modules, 2);
    fsdp_plan_destroy(plan);

    ASSERT_OK(plan_of(dir, "--joint-units model.layers.*.mlp", &plan)); /* inside two others */
    ASSERT_INT(plan->n_units, n_units + 1);
    ASSERT(unit_of(plan, "model.layers.0") && unit_of(plan, "model.layers.1"));
    fsdp_plan_destroy(plan);

    ASSERT_OK(plan_of(dir, "--frozen-prefixes lm_head --ignored-modules lm_head", &plan));
    ASSERT(!unit_of(plan, "lm_head"));
    ASSERT_INT(plan->n_units, n_units - 1);
    fsdp_plan_destroy(plan);

    ASSERT_OK(plan_of(dir, "--unit-mp-policy model.layers.1:bf16:float32:float32", &plan));
    ASSERT_INT(unit_of(plan, "model.layers.1")->all_gather_bytes * 2,
               unit_of(plan, "model.layers.0")->all_gather_bytes);
    fsdp_plan_destroy(plan);

    ASSERT_OK(plan_of(dir, "--min-num-params 2000", &plan));
    ASSERT(unit_of(plan, "model.layers.0.mlp"));
    fsdp_plan_destroy(plan);
    ASSERT_OK(plan_of(dir, "--min-num-params 2000 --exclude-wrap-modules LlamaMLP", &plan));
    ASSERT(unit_of(plan, "model.layers.0") && !unit_of(plan, "model.layers.0.mlp"));
    fsdp_plan_destroy(plan);
    ASSERT_OK(plan_of(dir, "--min-num-params 2000 --force-leaf-modules LlamaDecoderLayer", &plan));
    ASSERT(!unit_of(plan, "model.layers.0") && !unit_of(plan, "model.layers.0.mlp"));
    fsdp_plan_destroy(plan);
}

TEST(a_plan_heeds_what_flags_say_of_units)
{
    char dir[JOB_PATH];
    make_llama(t, dir);
    CHECK_HERE();
    check_plans(t, dir);
}

/* Counts the collectives of the step before the root's gather. */
typedef struct root_gather {
    const fsdp_group *group;
    const fsdp_module *root;
    uint64_t before; /* all_gathers of earlier steps */
    int64_t after;   /* time in this step at which the gather began; -1: it has not */
} root_gather;

static void note_root_gather(void *self, const fsdp_module *module, fsdp_unit_event event,
                             uint64_t bytes)
{
    root_gather *g = self;
    (void)bytes;
    if (module == g->root && event == FSDP_UNIT_GATHER && g->after < 0)
        g->after =
            (int64_t)(fsdp_group_counters(g->group)->calls[FSDP_KIND_ALL_GATHER] - g->before);
}

static fsdp_status step_watched(fsdp_trainer *trainer, root_gather *g)
{
    static const int32_t ids[] = {3, 4, 5, 6};
    const fsdp_batch_row row = {.source = ids, .labels = ids, .source_len = 4, .labels_len = 4};
    const fsdp_unit_observer observer = {.event = note_root_gather, .self = g};
    fsdp_batch *batch;
    fsdp_step_result result;
    *g = (root_gather){.group = trainer->group,
                       .root = trainer->loop.module,
                       .before = fsdp_group_counters(trainer->group)->calls[FSDP_KIND_ALL_GATHER],
                       .after = -1};
    FSDP_TRY(fsdp_batch_create(&row, 1, &trainer->model->info.format, &batch));
    fsdp_observe_units(trainer->loop.module, &observer);
    fsdp_status status = fsdp_train_step_on(&trainer->loop, &batch, 0.0, 0, &result);
    fsdp_observe_units(trainer->loop.module, NULL);
    fsdp_batch_release(batch);
    return status;
}

/* model.unshard() is called at the start of a step, before the ranks exchange the numbers of labels
 * of their batches. */
TEST_RANKS(explicit_prefetching_gathers_the_root_before_the_batches_are_counted, 2)
{
    static const char *const flags[] = {"--fp16", "--fp16 --explicit-prefetching",
                                        "--fp16 --forward-prefetch-depth 1"};
    char dir[JOB_PATH];
    make_llama(t, dir);
    CHECK_HERE();
    for (int i = 0; i < 3; i++) {
        fsdp_train_config config;
        fsdp_options *options;
        ASSERT_OK(parse(dir, flags[i], &config, &options));
        fsdp_trainer trainer = {.completed = config, .group = t->group};
        trainer.config = &trainer.completed;
        root_gather gather = {0};
        fsdp_status status = fsdp_device_create(NULL, &trainer.device);
        if (status == FSDP_OK)
            status = fsdp_trainer_open_model(&trainer);
        if (status == FSDP_OK)
            status = fsdp_trainer_open_loop(&trainer);
        if (status == FSDP_OK)
            status = step_watched(&trainer, &gather);
        fsdp_trainer_fini(&trainer);
        fsdp_options_destroy(options);
        ASSERT_OK(status);
        ASSERT_INT(gather.after, i ? 0 : 1);
    }
}

/* A tied weight belongs to the root, unless all modules that read it are in one unit. */
TEST(a_joint_unit_of_embedding_and_tied_head_has_their_weight)
{
    char dir[JOB_PATH], config[CONFIG];
    fsdp_plan *plan;
    tie(t, job_llama, config);
    CHECK_HERE();
    job_make_files_of(t, config, job_write_causal_rows, dir);
    CHECK_HERE();
    ASSERT_OK(plan_of(dir, "", &plan));
    ASSERT(!unit_of(plan, "model.embed_tokens") && !unit_of(plan, "lm_head"));
    const int64_t root_numel = unit_of(plan, "")->numel;
    fsdp_plan_destroy(plan);
    ASSERT_OK(plan_of(dir, "--joint-units lm_head,model.embed_tokens", &plan));
    const fsdp_plan_unit *joint = unit_of(plan, "lm_head");
    ASSERT(joint && joint->numel > 0);
    ASSERT_INT(joint->numel + unit_of(plan, "")->numel, root_numel);
    ASSERT_INT(joint->all_gathers, 2); /* also in backward, which reads the head */
    fsdp_plan_destroy(plan);
}

/* The second micro-step does not gather parameters that are kept. */
TEST(a_plan_keeps_parameters_between_micro_steps)
{
    char dir[JOB_PATH];
    fsdp_plan *plan;
    uint64_t gathers[2];
    make_llama(t, dir);
    CHECK_HERE();
    for (int keep = 0; keep < 2; keep++) {
        ASSERT_OK(plan_of(dir,
                          keep ? "--gradient-accumulation-steps 2 --no-reshard-after-backward"
                               : "--gradient-accumulation-steps 2",
                          &plan));
        gathers[keep] = unit_of(plan, "model.layers.0")->all_gathers;
        fsdp_plan_destroy(plan);
    }
    ASSERT_INT(gathers[0], 4);
    ASSERT_INT(gathers[1], 3);
}

/* The reduce left over from an earlier micro-step is one more in the last one's backward. */
TEST(a_plan_defers_the_last_reduce_of_a_micro_step)
{
    char dir[JOB_PATH];
    fsdp_plan *plan;
    make_llama(t, dir);
    CHECK_HERE();
    for (int deferred = 0; deferred < 2; deferred++) {
        size_t reduces = 0;
        ASSERT_OK(plan_of(dir,
                          deferred ? "--gradient-accumulation-steps 2 --set-is-last-backward"
                                   : "--gradient-accumulation-steps 2",
                          &plan));
        for (size_t i = 0; i < plan->n_events; i++)
            reduces += plan->events[i].kind == FSDP_PLAN_REDUCE;
        const size_t n_units = plan->n_units;
        fsdp_plan_destroy(plan);
        ASSERT_INT(reduces, n_units + (size_t)deferred);
    }
}

/* Number of gathers in progress when `unit` begins to compute in `phase`. */
static int under_way(const fsdp_plan *plan, fsdp_plan_phase phase, const char *unit)
{
    int n = 0;
    for (size_t i = 0; i < plan->n_events; i++) {
        const fsdp_plan_event *e = &plan->events[i];
        n += e->kind == FSDP_PLAN_GATHER;
        n -= e->kind == FSDP_PLAN_UNSHARD;
        if (e->kind == FSDP_PLAN_BEGIN && e->phase == phase &&
            strcmp(plan->units[e->unit].name, unit) == 0)
            return n;
    }
    return -1;
}

/* The T5's four blocks: the first one's list is the next two of them; in backward the last one's
 * list is the two before it. */
TEST(explicit_lists_are_gathered_in_their_depth)
{
    static const struct {
        const char *flags;
        int forward, backward;
    } rows[] = {
        {"--fp16 --max-seq-length 0 --max-source-length 5", 1, 1},
        {"--fp16 --max-seq-length 0 --max-source-length 5 --explicit-prefetching", 2, 2},
        {"--fp16 --max-seq-length 0 --max-source-length 5 --forward-prefetch-depth 2", 2, 1},
        {"--fp16 --max-seq-length 0 --max-source-length 5 --backward-prefetch-depth 2", 1, 2}};
    char dir[JOB_PATH];
    fsdp_plan *plan;
    job_make_files(t, dir);
    CHECK_HERE();
    for (size_t i = 0; i < FSDP_LENGTH(rows); i++) {
        ASSERT_OK(plan_of(dir, rows[i].flags, &plan));
        const int forward = under_way(plan, FSDP_PLAN_FORWARD, "encoder.block.0");
        const int backward = under_way(plan, FSDP_PLAN_BACKWARD, "decoder.block.1");
        fsdp_plan_destroy(plan);
        if (forward != rows[i].forward || backward != rows[i].backward)
            FAIL("%s: %d ahead in forward, %d in backward", rows[i].flags, forward, backward);
    }
}

/* Its operations do read parameters there: a plan reports the error that its run would fail with.
 */
TEST_RANKS(a_unit_is_not_gathered_for_backward_on_request, 2)
{
    static const char flags[] = "--bf16 --no-unshard-in-backward model.layers.0",
                      message[] = "of unit 'model.layers.0' is resharded: ";
    char dir[JOB_PATH], line[100];
    fsdp_train_result result;
    make_llama(t, dir);
    CHECK_HERE();
    if (t->rank == 0) {
        fsdp_plan *plan;
        ASSERT_ERROR(plan_of(dir, flags, &plan), FSDP_ERR_STATE, message);
        ASSERT(strstr(fsdp_last_error(), "--no-unshard-in-backward"));
        /* If parameters are kept from forward on, there is nothing to gather. */
        ASSERT_OK(plan_of(
            dir, "--reshard-after-forward false --no-unshard-in-backward model.layers.0", &plan));
        fsdp_plan_destroy(plan);
    }
    snprintf(line, sizeof line, "--no-save-model --max-steps 1 %s", flags);
    ASSERT(job_train(t->group, dir, line, &result) != FSDP_OK); /* its own failure or a peer's */
    ASSERT(strstr(fsdp_last_error(), message));
}

TEST(names_that_are_not_there_are_refused_with_the_nearest)
{
    static const struct {
        const char *flags, *message;
    } rows[] = {
        {"--ignored-modules lm_haed",
         "--ignored-modules lm_haed: the model has no such module; did you mean 'lm_head'?"},
        {"--joint-units lm_head,model.embed_tokes",
         "--joint-units model.embed_tokes: the model has no such module; did you mean "
         "'model.embed_tokens'?"},
        {"--joint-units model.layers.0,model.layers.0.mlp", "(LlamaMLP) is inside '0' (Llama"},
        {"--joint-units LlamaForCausalLM", "--joint-units: a joint unit is of modules below the "},
        {"--joint-units lm_head,model.norm", "--joint-units: module 'model.norm' (LlamaRMSNorm) "
                                             "has no forward of its own"},
        {"--ignored-states lm_head.wieght", "did you mean 'lm_head.weight'?"},
        {"--ignored-states lm_head.weight", "each rank would train a 'lm_head.weight'"},
        {"--shard-placement lm_head.weight:2",
         "--shard-placement lm_head.weight:2: a dimension of lm_head.weight is from -2 to 1"},
        {"--shard-placement lm_head.weight", "expected NAME:DIM"},
        {"--shard-placement nothing:0", "--shard-placement nothing: the model has no such"},
        {"--unit-mp-policy model.layers.7:bf16", "did you mean 'model.layers.0'?"},
        {"--unit-mp-policy model.layers.0:int8", "--unit-mp-policy model.layers.0:int8: "},
        {"--unit-mp-policy model.layers.0", "expected NAME:PARAM_DTYPE"},
        {"--no-unshard-in-backward LlamaDecodrLayer", "did you mean 'LlamaDecoderLayer'?"},
        {"--min-num-params 10 --force-leaf-modules LlamaMPL", "did you mean 'LlamaMLP'?"},
        {"--no-decay layernrm", "--no-decay layernrm: no parameter has this in its name"}};
    char dir[JOB_PATH];
    fsdp_plan *plan;
    make_llama(t, dir);
    CHECK_HERE();
    for (size_t i = 0; i < FSDP_LENGTH(rows); i++)
        ASSERT_ERROR(plan_of(dir, rows[i].flags, &plan), FSDP_ERR_INVALID, rows[i].message);
}

/* The plan must not suggest a remedy that the other flags contradict. */
TEST(a_limit_tries_what_goes_with_the_flags)
{
    static const char *const flags[] = {"--unit-mp-policy model.layers.1:float32:float32:float32",
                                        "--shard-placement *_proj.weight:1 --optimizer adamw"};
    char dir[JOB_PATH], line[200];
    make_llama(t, dir);
    CHECK_HERE();
    for (size_t i = 0; i < FSDP_LENGTH(flags); i++) {
        fsdp_train_config config;
        fsdp_options *options;
        snprintf(line, sizeof line, "--memory-limit 1MiB %s", flags[i]);
        ASSERT_OK(parse(dir, line, &config, &options));
        fsdp_status status = fsdp_memory_limit_check(&config, 2, 2);
        fsdp_options_destroy(options);
        ASSERT_ERROR(status, FSDP_ERR_NOMEM, "too much even with");
    }
}
