/* `fsdp plan --fit`: the proposal fits, its flags give the plan that was promised, and cheap flags
 * are preferred. */
#include <stdio.h>
#include <string.h>

#include "src/plan/fit.h"
#include "tests/test.h"

enum {
    LENGTH = 2048
};

/* The configuration of `fsdp plan` with these flags. `text` is memory for the flags. */
static fsdp_status parse(const char *flags, char text[LENGTH], fsdp_train_config *c,
                         fsdp_options **options)
{
    char *argv[64] = {0};
    int argc = 0;
    /* Two names of one option with different values are an error. */
    const bool has_batch_size = strstr(flags, "--per_device_train_batch_size") != NULL;
    snprintf(text, LENGTH, "fsdp --model %s --data - --no-save-model --max-seq-length 256 %s %s",
             fsdp_test_path("fixtures/plan/llama3-8b"), has_batch_size ? "" : "--batch-size 8",
             flags);
    for (char *word = strtok(text, " "); word; word = strtok(NULL, " "))
        argv[argc++] = word;
    fsdp_status status = fsdp_options_parse(fsdp_train_options(), argc, argv, c, options);
    c->from_config = true;
    return status;
}

static fsdp_status fit_on_hosts(const char *flags, int ranks, int local, int64_t limit,
                                fsdp_fit **fit)
{
    char text[LENGTH];
    fsdp_train_config c = {0};
    fsdp_options *options;
    FSDP_TRY(parse(flags, text, &c, &options));
    fsdp_status status = fsdp_fit_create(&c, ranks, local, limit, fit);
    fsdp_options_destroy(options);
    return status;
}

static fsdp_status fit_of(const char *flags, int ranks, int64_t limit, fsdp_fit **fit)
{
    return fit_on_hosts(flags, ranks, ranks, limit, fit);
}

static fsdp_status bytes_of(const char *flags, int ranks, int64_t *bytes)
{
    char text[LENGTH];
    fsdp_train_config c = {0};
    fsdp_options *options;
    fsdp_plan *plan = NULL;
    FSDP_TRY(parse(flags, text, &c, &options));
    fsdp_status status = fsdp_plan_create(&c, ranks, ranks, &plan);
    if (status == FSDP_OK)
        *bytes = fsdp_plan_rank_bytes(plan);
    fsdp_plan_destroy(plan);
    fsdp_options_destroy(options);
    return status;
}

/* Check that the flags of the proposal, given to a plan, need what the proposal says. */
static void check_proposal(fsdp_test *t, const char *flags, int ranks, const fsdp_fit *fit)
{
    char all[LENGTH];
    int64_t bytes;
    snprintf(all, sizeof all, "%s %s", flags, fit->proposal.flags);
    ASSERT_OK(bytes_of(all, ranks, &bytes));
    ASSERT_INT(bytes, fit->proposal.rank_bytes);
    ASSERT(fit->fits && bytes <= fit->limit);
}

TEST(a_run_that_fits_needs_no_flags)
{
    fsdp_fit *fit;
    ASSERT_OK(fit_of("", 8, (int64_t)100 << 30, &fit));
    ASSERT(fit->fits);
    ASSERT_STR(fit->proposal.flags, "");
    ASSERT_INT(fit->n_rows, 1);
    ASSERT_OK(fsdp_fit_check(fit));
    fsdp_fit_destroy(fit);
}

TEST(a_proposal_has_the_bytes_that_it_promises)
{
    static const struct {
        const char *flags;
        int ranks;
        int64_t gib;
    } cases[] = {{"", 8, 16},
                 {"", 8, 11},
                 {"", 4, 24},
                 {"--bf16", 2, 40},
                 {"", 1, 80},
                 {"", 1, 24},
                 {"--validation-batch-size 96", 8, 16},
                 {"--async-save --save-steps 5 --checkpoint-dir /tmp", 8, 16}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fsdp_fit *fit;
        ASSERT_OK(fit_of(cases[i].flags, cases[i].ranks, cases[i].gib << 30, &fit));
        ASSERT(*fit->proposal.flags);
        check_proposal(t, cases[i].flags, cases[i].ranks, fit);
        CHECK_HERE();
        for (size_t r = 1; r < fit->n_rows; r++)
            ASSERT(fit->rows[r].rank_bytes < fit->rows[r - 1].rank_bytes);
        fsdp_fit_destroy(fit);
    }
}

/* Activation checkpointing alone is enough, so nothing that changes the numbers is proposed. */
TEST(a_cheap_flag_is_preferred)
{
    fsdp_fit *fit;
    int64_t with;
    ASSERT_OK(bytes_of("--activation-checkpointing", 8, &with));
    ASSERT_OK(fit_of("", 8, with, &fit));
    ASSERT_STR(fit->proposal.flags, "--activation-checkpointing");
    fsdp_fit_destroy(fit);
}

/* Without the 8-bit states, the same run does not fit. */
TEST(states_in_8_bits_are_proposed_when_states_are_too_large)
{
    fsdp_fit *fit;
    int64_t with, without;
    ASSERT_OK(bytes_of("--activation-checkpointing --optimizer adamw_8bit", 8, &with));
    ASSERT_OK(bytes_of("--activation-checkpointing", 8, &without));
    ASSERT(with < without);
    ASSERT_OK(fit_of("--activation-checkpointing", 8, with, &fit));
    ASSERT_STR(fit->proposal.flags, "--optimizer adamw_8bit");
    fsdp_fit_destroy(fit);
}

/* Adafactor needs less than states in 8 bits. It replaces them where they are not enough, and gives
 * way to them where they are. */
TEST(adafactor_is_tried_after_states_in_8_bits)
{
    static const char adafactor[] = "--optimizer adafactor --master-dtype bfloat16";
    char flags[LENGTH - 128], all[LENGTH];
    fsdp_fit *fit;
    int64_t with, rounded;
    snprintf(flags, sizeof flags,
             "--model %s --max-seq-length 2048 --batch-size 1 --bf16 --activation-checkpointing",
             fsdp_test_path("fixtures/plan/llama3-1b"));
    snprintf(all, sizeof all, "%s %s", flags, adafactor);
    ASSERT_OK(bytes_of(all, 2, &with));
    ASSERT_OK(fit_of(flags, 2, with, &fit));
    ASSERT_STR(fit->proposal.flags, adafactor);
    check_proposal(t, flags, 2, fit);
    fsdp_fit_destroy(fit);
    snprintf(all, sizeof all,
             "%s --optimizer adamw_8bit --master-dtype bfloat16 --bf16-stochastic-round", flags);
    ASSERT_OK(bytes_of(all, 2, &rounded));
    ASSERT(with < rounded);
    snprintf(all, sizeof all, "%s --optimizer adamw_8bit", flags);
    ASSERT_OK(fit_of(all, 2, with, &fit)); /* the user's own states in 8 bits give way, too */
    ASSERT_STR(fit->proposal.flags, adafactor);
    fsdp_fit_destroy(fit);
}

/* Each proposal is added to flags that it would contradict in another form. */
TEST(a_proposal_is_accepted_with_the_flags_of_the_run)
{
    static const struct {
        const char *flags, *has, *has_not;
        int gib;
    } cases[] = {{"--mixed-precision no", "--mixed-precision bf16", "--bf16 ", 9},
                 {"--param-dtype float32", "--param-dtype bfloat16", "--bf16 ", 9},
                 {"--optimizer adam --beta2 0.95", "--lora-r", "adafactor", 8},
                 {"--per_device_train_batch_size 64 --activation-checkpointing",
                  "--per_device_train_batch_size ", "--batch-size", 18},
                 {"--no-gradient_checkpointing", "--gradient_checkpointing",
                  "--activation-checkpointing ", 20}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fsdp_fit *fit;
        ASSERT_OK(fit_of(cases[i].flags, 8, (int64_t)cases[i].gib << 30, &fit));
        ASSERT(strstr(fit->proposal.flags, cases[i].has));
        ASSERT(!strstr(fit->proposal.flags, cases[i].has_not));
        check_proposal(t, cases[i].flags, 8, fit);
        CHECK_HERE();
        fsdp_fit_destroy(fit);
    }
}

/* Ranks of different hosts have copies of what they gather, which resharding frees. */
TEST(resharding_is_proposed_in_the_form_of_the_command_line)
{
    static const struct {
        const char *flags, *proposal;
    } cases[] = {{"--reshard-after-forward false", "--reshard-after-forward true"},
                 {"--fsdp_reshard_after_forward false", "--fsdp_reshard_after_forward true"},
                 {"--sharding_strategy SHARD_GRAD_OP", "--sharding_strategy FULL_SHARD"},
                 {"--sharding-strategy SHARD_GRAD_OP --no-reshard-after-forward",
                  "--reshard-after-forward true --sharding-strategy FULL_SHARD"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fsdp_fit *fit, *again;
        char all[LENGTH];
        ASSERT_OK(fit_on_hosts(cases[i].flags, 8, 1, (int64_t)1 << 40, &fit));
        const int64_t as_given = fit->proposal.rank_bytes;
        fsdp_fit_destroy(fit);
        ASSERT_OK(fit_on_hosts(cases[i].flags, 8, 1, as_given - 1, &fit));
        ASSERT_STR(fit->proposal.flags, cases[i].proposal);
        snprintf(all, sizeof all, "%s %s", cases[i].flags, fit->proposal.flags);
        ASSERT_OK(fit_on_hosts(all, 8, 1, (int64_t)1 << 40, &again));
        ASSERT_INT(again->proposal.rank_bytes, fit->proposal.rank_bytes);
        fsdp_fit_destroy(again);
        fsdp_fit_destroy(fit);
    }
}

/* Only Adam and AdamW have --optimizer-state-dtype. */
TEST(no_other_optimizer_is_proposed_if_the_dtype_of_states_is_given)
{
    fsdp_fit *fit;
    ASSERT_OK(fit_of("--optimizer-state-dtype bfloat16", 8, (int64_t)4 << 30, &fit));
    ASSERT(*fit->proposal.flags && !strstr(fit->proposal.flags, "--optimizer"));
    fsdp_fit_destroy(fit);
}

/* A rank of another host has copies of what it gathers: one byte a weight instead of two. The
 * proposal says what that costs. A limit that only an adapter keeps leaves float8 out. */
TEST(a_float8_all_gather_is_proposed_where_it_saves_memory)
{
    static const char flags[] = "--bf16 --activation-checkpointing --optimizer adamw_8bit "
                                "--master-dtype bfloat16 --bf16-stochastic-round";
    static const char float8[] = "--float8-recipe tensorwise --float8-enable-fsdp-all-gather";
    fsdp_fit *fit;
    ASSERT_OK(fit_on_hosts(flags, 8, 1, (int64_t)1 << 40, &fit));
    const int64_t as_given = fit->proposal.rank_bytes;
    fsdp_fit_destroy(fit);
    ASSERT_OK(fit_on_hosts(flags, 8, 1, as_given - ((int64_t)100 << 20), &fit));
    ASSERT_STR(fit->proposal.flags, float8);
    ASSERT(fit->fits && fit->n_costs == 1);
    ASSERT(strstr(fit->costs[0], "--float8-enable-fsdp-all-gather: a gather sends 1 byte"));
    fsdp_fit_destroy(fit);
    ASSERT_OK(fit_on_hosts(flags, 8, 1, (int64_t)8 << 30, &fit));
    ASSERT(fit->fits && strstr(fit->proposal.flags, "--lora-r"));
    ASSERT(!strstr(fit->proposal.flags, "float8"));
    ASSERT_STR(fit->rows[1].flags, float8);
    fsdp_fit_destroy(fit);
}

/* LoRA and float8 contradict each other, so a proposal never has both. */
TEST(a_proposal_has_no_flags_that_contradict_each_other)
{
    fsdp_fit *fit;
    ASSERT_OK(fit_of("--optimizer muon", 1, (int64_t)12 << 30, &fit));
    ASSERT(fit->n_rows > 3);
    ASSERT(!strstr(fit->proposal.flags, "--lora") || !strstr(fit->proposal.flags, "float8"));
    ASSERT(!strstr(fit->proposal.flags, "stochastic")); /* Muon does not round so */
    check_proposal(t, "--optimizer muon", 1, fit);
    fsdp_fit_destroy(fit);
    ASSERT_OK(fit_of("--lora-r 8", 1, (int64_t)12 << 30, &fit));
    ASSERT(!strstr(fit->proposal.flags, "float8"));
    fsdp_fit_destroy(fit);
}

/* A card has the kernels of narrow states. A float8 all-gather is proposed for the CPU only. */
TEST(a_card_is_proposed_narrow_states)
{
    static const char flags[] = "--device cuda --bf16 --activation-checkpointing";
    char all[LENGTH];
    fsdp_fit *fit;
    int64_t with;
    snprintf(all, sizeof all,
             "%s --optimizer adamw_8bit --master-dtype bfloat16 --bf16-stochastic-round", flags);
    ASSERT_OK(bytes_of(all, 1, &with));
    ASSERT_OK(fit_of(flags, 1, with, &fit));
    ASSERT(fit->fits);
    ASSERT(strstr(fit->proposal.flags, "8bit") && strstr(fit->proposal.flags, "stochastic"));
    fsdp_fit_destroy(fit);
    ASSERT_OK(fit_of("--device cuda", 1, (int64_t)1 << 20, &fit));
    ASSERT(!strstr(fit->proposal.flags, "float8"));
    fsdp_fit_destroy(fit);
}

TEST(if_nothing_fits_the_smallest_is_named)
{
    fsdp_fit *fit;
    ASSERT_OK(fit_of("", 1, 1 << 20, &fit));
    ASSERT(!fit->fits);
    ASSERT_ERROR(fsdp_fit_check(fit), FSDP_ERR_NOMEM, "--fit 1.000 MiB: no setting");
    ASSERT(strstr(fsdp_last_error(), fit->proposal.flags));
    ASSERT(fit->proposal.rank_bytes <= fit->rows[fit->n_rows - 1].rank_bytes);
    fsdp_fit_destroy(fit);
}
