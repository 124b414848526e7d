/* See masked_dataset.h.
 *
 * Note [Masking]. Tokens are drawn as in transformers' DataCollatorForLanguageModeling. Each token
 * that is not special is chosen with probability mlm_probability. A chosen token becomes the mask
 * token with probability 0.8, a random token of the vocabulary with probability 0.1, and stays as
 * it is otherwise. The random numbers of token i are computed by Philox from the key and i. So no
 * generator has a state, and a row is masked in the same way on every rank. The key depends only on
 * seed, epoch and index. */
#include "src/data/datasets/masked_dataset.h"

#include <inttypes.h>
#include <math.h>

#include "src/base/alloc.h"
#include "src/base/philox.h"
#include "src/base/str.h"
#include "src/data/datasets/dataset.h"

typedef struct masked_dataset {
    fsdp_dataset *rows; /* owned */
    fsdp_masking masking;
    int64_t vocab_size;
    uint8_t *is_special; /* [vocab_size]; NULL: rows cannot be masked, because the id of the mask
                            token is not known */
    char *path;          /* for messages */
} masked_dataset;

/* ---- masking ---- */

/* Return true with probability p, for bits that are drawn uniformly. */
static bool happens(uint32_t bits, double p)
{
    return (double)bits < p * 4294967296.0;
}

/* Return what replaces a chosen token. */
static int32_t replacement(const fsdp_masking *m, int64_t vocab_size, int32_t id, fsdp_philox bits)
{
    if (happens(bits.v[1], 0.8))
        return m->mask_token_id;
    if (happens(bits.v[1], 0.9))
        return (int32_t)((uint64_t)bits.v[2] * (uint64_t)vocab_size >> 32);
    return id;
}

fsdp_status fsdp_mask_tokens(const fsdp_masking *m, const uint8_t *is_special, int64_t vocab_size,
                             uint64_t key, fsdp_example *example)
{
    int32_t *ids = example->source.ids;
    fsdp_token_list *labels = &example->labels;
    if (!FSDP_GROW(labels->ids, labels->cap, example->source.len))
        return FSDP_ERR_NOMEM;
    for (size_t i = 0; i < example->source.len; i++) {
        const fsdp_philox bits = fsdp_philox4x32(key, i, 0);
        const bool chosen = happens(bits.v[0], m->mlm_probability) && !is_special[ids[i]];
        labels->ids[i] = chosen ? ids[i] : FSDP_IGNORE_INDEX;
        if (chosen)
            ids[i] = replacement(m, vocab_size, ids[i], bits);
    }
    labels->len = example->source.len;
    return FSDP_OK;
}

/* Return the key for example `index`. `domain` makes sure that this key differs from the keys of
 * the sampler and of other objectives. */
static uint64_t key_of(const fsdp_draw *draw, int64_t index)
{
    const uint64_t domain = 0x6D61736B; /* the letters "mask" in ASCII */
    uint64_t key = fsdp_mix64(fsdp_mix64(draw->seed ^ domain << 32) + (uint64_t)draw->epoch);
    return fsdp_mix64(key + (uint64_t)index);
}

/* ---- functions of the dataset ---- */

static int64_t masked_len(void *self)
{
    return fsdp_dataset_len(((const masked_dataset *)self)->rows);
}

static fsdp_status masked_draw(void *self, int64_t index, const fsdp_draw *draw,
                               fsdp_example *example)
{
    const masked_dataset *d = self;
    FSDP_TRY(fsdp_dataset_draw(d->rows, index, draw, example));
    /* In a row of a token file, the labels are the next tokens, so there is one label more than
     * there are tokens. Rows with such labels are masked, too. */
    if (example->labels.len == example->source.len + 1)
        example->labels.len = 0;
    if (example->labels.len > 0)
        return FSDP_OK;
    if (d->masking.mask_token_id < 0)
        return fsdp_error(FSDP_ERR_INVALID,
                          "%s: example %" PRId64 " has no labels, and cannot be masked: the id of "
                          "the mask token is not known%s%s",
                          d->path, index, d->masking.why_no_mask ? "; " : "",
                          d->masking.why_no_mask ? d->masking.why_no_mask : "");
    return fsdp_mask_tokens(&d->masking, d->is_special, d->vocab_size, key_of(draw, index),
                            example);
}

static fsdp_status masked_texts(void *self, int64_t index, char **source, char **target)
{
    return fsdp_dataset_texts(((const masked_dataset *)self)->rows, index, source, target);
}

static fsdp_status masked_left_out(void *self, const fsdp_row_range *range, fsdp_left_out *sum)
{
    return fsdp_dataset_left_out_of(((const masked_dataset *)self)->rows, range, sum);
}

static void masked_free(masked_dataset *d)
{
    fsdp_free(d->is_special);
    fsdp_free(d->path);
    fsdp_free(d);
}

static void masked_close(void *self)
{
    masked_dataset *d = self;
    fsdp_dataset_close(d->rows);
    masked_free(d);
}

static const fsdp_dataset_ops masked_ops = {
    .len = masked_len, .draw = masked_draw, .texts = masked_texts, .close = masked_close};

/* ---- opening ---- */

static fsdp_status check_masking(const fsdp_masking *m, int64_t vocab_size)
{
    if (!(m->mlm_probability > 0 && m->mlm_probability <= 1))
        return fsdp_error(FSDP_ERR_INVALID, "masking: mlm_probability %g is not in (0, 1]",
                          m->mlm_probability);
    if (m->mask_token_id >= 0 && vocab_size == INT32_MAX)
        return fsdp_error(FSDP_ERR_INVALID,
                          "masking: random tokens are drawn from the vocabulary, but its size is "
                          "not known: set vocab_size or tokenizer");
    if (m->mask_token_id >= vocab_size)
        return fsdp_error(FSDP_ERR_INVALID,
                          "masking: the mask token has id %d, the vocabulary %" PRId64 " ids",
                          (int)m->mask_token_id, vocab_size);
    return FSDP_OK;
}

static fsdp_status fill(masked_dataset *d, const char *path, const fsdp_masking *m)
{
    d->path = fsdp_strdup(path);
    if (!d->path)
        return FSDP_ERR_NOMEM;
    if (m->mask_token_id < 0)
        return FSDP_OK;
    d->is_special = fsdp_calloc((size_t)d->vocab_size, sizeof *d->is_special);
    if (!d->is_special)
        return FSDP_ERR_NOMEM;
    for (size_t i = 0; i < m->n_special; i++)
        if (m->special_ids[i] >= 0 && m->special_ids[i] < d->vocab_size)
            d->is_special[m->special_ids[i]] = 1;
    return FSDP_OK;
}

fsdp_status fsdp_masked_dataset_create(const char *path, fsdp_dataset *rows,
                                       const fsdp_dataset_options *options, fsdp_dataset **out)
{
    fsdp_masking m = options->masking ? *options->masking : (fsdp_masking){.mask_token_id = -1};
    if (m.mlm_probability == 0)
        m.mlm_probability = 0.15;
    FSDP_TRY(check_masking(&m, options->vocab_size));
    masked_dataset *d = fsdp_calloc(1, sizeof *d);
    if (!d)
        return FSDP_ERR_NOMEM;
    *d = (masked_dataset){.rows = rows, .masking = m, .vocab_size = options->vocab_size};
    fsdp_status status = fill(d, path, &m);
    if (status == FSDP_OK)
        status = fsdp_dataset_create(&masked_ops, d, out);
    if (status != FSDP_OK) {
        masked_free(d);
        return status;
    }
    fsdp_dataset_set_uses(*out, fsdp_dataset_uses(rows));
    fsdp_dataset_set_note(*out, fsdp_dataset_note(rows));
    fsdp_dataset_set_left_out(*out, masked_left_out);
    fsdp_dataset_set_file_rows(*out, fsdp_dataset_file_rows(rows));
    return FSDP_OK;
}
