/* See memory_limit.h. */
#include "src/plan/memory_limit.h"

#include <stdio.h>

#include <fsdp/nn.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/base/error.h"
#include "src/comm/agree.h"
#include "src/plan/plan.h"
#include "src/plan/remedies.h"
#include "src/report/human.h"

typedef struct judge {
    const fsdp_train_config *config;
    int world_size, local_world_size;
} judge;

static fsdp_status limited_bytes(const judge *j, const fsdp_train_config *config, int64_t *bytes)
{
    fsdp_plan *plan;
    FSDP_TRY(fsdp_plan_create(config, j->world_size, j->local_world_size, &plan));
    *bytes = fsdp_plan_limited_bytes(plan);
    fsdp_plan_destroy(plan);
    return FSDP_OK;
}

/* --- remedies --- */

/* All remedies, in the order in which they are tried. Those that change the run least come
 * first. */
static fsdp_remedy_fn *const remedies[] = {fsdp_remedy_checkpoint, fsdp_remedy_save_in_step,
                                           fsdp_remedy_reshard,    fsdp_remedy_split_batch,
                                           fsdp_remedy_bf16,       fsdp_remedy_adamw_8bit,
                                           fsdp_remedy_adafactor,  fsdp_remedy_offload};

/* The sets of remedies that are combined, in the order in which they are tried. Each entry lists
 * the remedies that its set leaves out. A run has one optimizer, so each set leaves out one of the
 * two optimizers that are proposed. Sets with offload come last, because offload makes steps as
 * slow as the disk. */
static fsdp_remedy_fn *const left_out[][2] = {{fsdp_remedy_adafactor, fsdp_remedy_offload},
                                              {fsdp_remedy_adamw_8bit, fsdp_remedy_offload},
                                              {fsdp_remedy_adafactor},
                                              {fsdp_remedy_adamw_8bit}};

/* A set of remedies: their flags, and fsdp_plan_limited_bytes() of a plan with these remedies. */
typedef struct trial {
    fsdp_str flags;
    int64_t bytes;
    bool fits;
} trial;

/* Return true if `status` means that a remedy conflicts with other flags, for example --bf16 with a
 * unit in float32. */
static bool contradicts(fsdp_status status)
{
    return status == FSDP_ERR_INVALID || status == FSDP_ERR_UNSUPPORTED;
}

/* Return an error if the program refuses the flags of `t` together with `flags`. */
static fsdp_status check_flags(const judge *j, const trial *t, size_t length, const fsdp_str *flags)
{
    fsdp_str all = {0};
    fsdp_str_append(&all, t->flags.data, length);
    fsdp_str_append(&all, flags->data, flags->len);
    fsdp_status status = all.failed ? fsdp_error_nomem() : FSDP_OK;
    if (status == FSDP_OK && !fsdp_remedy_is_accepted(j->config, all.data))
        status = fsdp_error(FSDP_ERR_INVALID, "the flags contradict each other");
    fsdp_str_fini(&all);
    return status;
}

/* Apply one remedy to `c`. Repeat this until the run fits, until the remedy saves no more memory,
 * or until the remedy finds nothing to change. Only fsdp_remedy_split_batch() can be applied
 * several times. The flags of its latest change replace the flags of its earlier changes. */
static fsdp_status improve(const judge *j, fsdp_remedy_fn *remedy, fsdp_train_config *c, trial *t)
{
    const size_t before = t->flags.len;
    for (bool better = true; better && !t->fits;) {
        fsdp_train_config next = *c;
        fsdp_str flags = {0};
        int64_t bytes = 0;
        if (!remedy(&next, &flags))
            return FSDP_OK;
        fsdp_status status = flags.failed ? fsdp_error_nomem() : check_flags(j, t, before, &flags);
        if (status == FSDP_OK)
            status = limited_bytes(j, &next, &bytes);
        if (contradicts(status)) {
            fsdp_str_fini(&flags);
            return FSDP_OK;
        }
        better = status == FSDP_OK && bytes < t->bytes;
        if (better) {
            *c = next;
            t->bytes = bytes;
            t->fits = bytes <= j->config->memory_limit;
            t->flags.len = before;
            fsdp_str_append(&t->flags, flags.data, flags.len);
        }
        fsdp_str_fini(&flags);
        FSDP_TRY(status);
    }
    return FSDP_OK;
}

static bool is_left_out(fsdp_remedy_fn *remedy, fsdp_remedy_fn *const *those)
{
    return remedy == those[0] || remedy == those[1];
}

/* Add one remedy after another, except the two in `those`, until the run fits. */
static fsdp_status combine(const judge *j, fsdp_remedy_fn *const *those, trial *t)
{
    fsdp_train_config c = *j->config;
    for (size_t i = 0; i < FSDP_LENGTH(remedies) && !t->fits; i++)
        if (!is_left_out(remedies[i], those))
            FSDP_TRY(improve(j, remedies[i], &c, t));
    return FSDP_OK;
}

/* Combine the remedies of each set until the run fits with one of the sets. If it fits with none,
 * *best becomes the set with which the run needs the least memory. */
static fsdp_status combine_sets(const judge *j, int64_t planned, trial *best)
{
    for (size_t i = 0; i < FSDP_LENGTH(left_out) && !best->fits; i++) {
        trial t = {.bytes = planned};
        fsdp_status status = combine(j, left_out[i], &t);
        if (status == FSDP_OK && t.bytes < best->bytes) {
            fsdp_str_fini(&best->flags);
            *best = t;
        } else {
            fsdp_str_fini(&t.flags);
        }
        FSDP_TRY(status);
    }
    return FSDP_OK;
}

/* First try each remedy alone. If no single remedy makes the run fit, combine them. */
static fsdp_status find_remedy(const judge *j, int64_t planned, trial *t)
{
    for (size_t i = 0; i < FSDP_LENGTH(remedies) && !t->fits; i++) {
        fsdp_train_config c = *j->config;
        t->flags.len = 0;
        t->bytes = planned;
        FSDP_TRY(improve(j, remedies[i], &c, t));
    }
    if (t->fits)
        return FSDP_OK;
    t->flags.len = 0;
    t->bytes = planned;
    return combine_sets(j, planned, t);
}

/* --- the verdict --- */

static void list_purposes(const fsdp_plan *p, fsdp_str *text)
{
    const int64_t ranks = p->ranks_per_card ? p->ranks_per_card : p->local_world_size;
    for (int tag = 0; tag < FSDP_TAG_COUNT; tag++)
        if (p->peak.tag[tag])
            fsdp_str_printf(text, "%s %s, ", fsdp_tag_name((fsdp_tag)tag),
                            fsdp_human_bytes(p->peak.tag[tag] * ranks).text);
    if (p->ranks_per_card) {
        fsdp_str_printf(text, "between tensors %s",
                        fsdp_human_bytes(fsdp_plan_limited_bytes(p) - p->peak.total * ranks).text);
        return;
    }
    if (p->staging)
        fsdp_str_printf(text, "copies for --async-save %s, ",
                        fsdp_human_bytes(p->staging * ranks).text);
    fsdp_str_printf(
        text, "not in tensors %s",
        fsdp_human_bytes(fsdp_plan_host_bytes(p) - (p->peak.total + p->staging) * ranks).text);
}

static const char *text_of(const fsdp_str *s)
{
    return s->data ? s->data : "";
}

static void describe_trial(const trial *t, fsdp_str *text)
{
    if (!t->flags.len)
        fsdp_str_printf(text, "no setting is left that would need less");
    else
        fsdp_str_printf(text, "%s%.*s: %s", t->fits ? "it fits with" : "too much even with",
                        (int)t->flags.len, t->flags.data, fsdp_human_bytes(t->bytes).text);
}

static fsdp_status refuse_job(const judge *j, const fsdp_plan *p, const trial *t)
{
    fsdp_str purposes = {0}, remedy = {0};
    list_purposes(p, &purposes);
    describe_trial(t, &remedy);
    const int ranks = p->ranks_per_card ? p->ranks_per_card : p->local_world_size;
    fsdp_status status = fsdp_error(
        FSDP_ERR_NOMEM,
        "--memory-limit %s: the %d rank%s of a %s would hold %s (%s), most in %s of %s; %s",
        fsdp_human_bytes(j->config->memory_limit).text, ranks, ranks == 1 ? "" : "s",
        p->ranks_per_card ? "card" : "host", fsdp_human_bytes(fsdp_plan_limited_bytes(p)).text,
        text_of(&purposes), fsdp_plan_phase_name(p->peak_at.phase),
        p->peak_at.unit < 0 ? "all units" : fsdp_plan_unit_name(p, p->peak_at.unit),
        text_of(&remedy));
    fsdp_str_fini(&purposes);
    fsdp_str_fini(&remedy);
    return status;
}

static fsdp_status judge_plan(const judge *j, const fsdp_plan *p)
{
    if (p->length_is_assumed)
        return fsdp_error(FSDP_ERR_INVALID,
                          "--memory-limit: without --max-seq-length nothing bounds the rows of "
                          "this model (its positions are rotary, so max_position_embeddings does "
                          "not), so there is no plan to hold against it");
    if (fsdp_plan_limited_bytes(p) <= j->config->memory_limit)
        return FSDP_OK;
    trial t = {0};
    fsdp_status status = find_remedy(j, fsdp_plan_limited_bytes(p), &t);
    if (status == FSDP_OK)
        status = refuse_job(j, p, &t);
    fsdp_str_fini(&t.flags);
    return status;
}

fsdp_status fsdp_memory_limit_check(const fsdp_train_config *config, int world_size,
                                    int local_world_size)
{
    const judge j = {config, world_size, local_world_size};
    fsdp_plan *plan;
    if (!config->memory_limit)
        return FSDP_OK;
    FSDP_TRY(fsdp_plan_create(config, world_size, local_world_size, &plan));
    fsdp_status status = judge_plan(&j, plan);
    fsdp_plan_destroy(plan);
    return status;
}

/* Find remedies with which the run fits, and append a text about them to `text`. Fails if no plan
 * can be made. */
static fsdp_status describe_remedy(const judge *j, fsdp_str *text)
{
    trial t = {0};
    int64_t planned = 0;
    fsdp_status status = limited_bytes(j, j->config, &planned);
    if (status == FSDP_OK)
        status = find_remedy(j, planned, &t);
    if (status == FSDP_OK) {
        fsdp_str_printf(text, "the run needs about %s of the card, and tensors may have %s; ",
                        fsdp_human_bytes(planned).text,
                        fsdp_human_bytes(j->config->memory_limit).text);
        describe_trial(&t, text);
        fsdp_str_printf(text, "; more ranks on more cards, or a card with more memory, help, too");
    }
    fsdp_str_fini(&t.flags);
    return status;
}

fsdp_status fsdp_memory_limit_advise(const fsdp_train_config *config, int world_size,
                                     int local_world_size, int64_t bytes)
{
    fsdp_train_config limited = *config;
    fsdp_str text = {0};
    fsdp_saved_error failure;
    limited.memory_limit = bytes;
    const judge j = {&limited, world_size, local_world_size};
    fsdp_error_save(FSDP_ERR_NOMEM, &failure);
    const fsdp_status described = describe_remedy(&j, &text);
    fsdp_status status = fsdp_error_restore(&failure);
    if (described == FSDP_OK && !text.failed) {
        char message[FSDP_ERROR_BYTES];
        snprintf(message, sizeof message, "%s", fsdp_last_error());
        status = fsdp_error(FSDP_ERR_NOMEM, "%s; %s", message, text_of(&text));
    }
    fsdp_str_fini(&text);
    return status;
}

fsdp_status fsdp_memory_limit_check_job(const fsdp_train_config *config, fsdp_group *group)
{
    fsdp_status status = FSDP_OK;
    if (fsdp_group_rank(group) == 0)
        status = fsdp_memory_limit_check(config, fsdp_group_world_size(group),
                                         fsdp_group_local_world_size(group));
    return config->memory_limit ? fsdp_agree(group, status) : FSDP_OK;
}
