/* T5's span corruption: lengths, and the random division of a piece into spans.
 *
 * Note [Span corruption]. Spans are drawn as in T5's random_spans_noise_mask. A piece has noise
 * tokens, which are replaced, and other tokens. Each kind is divided into one segment for each
 * span, and every division is equally likely. Segments of the two kinds alternate in the piece; a
 * segment of other tokens comes first.
 *
 * To divide n tokens into k segments, k - 1 of the n - 1 places between tokens are drawn as cuts.
 * This takes one pass: a place becomes a cut with probability (cuts left) / (places left) [Knuth,
 * TAOCP 2, 3.4.2, algorithm S]. A piece has two streams of random values, one for each kind of
 * token. Value i of a stream is Philox of the key, the stream and i, so no generator has to keep a
 * state. The key depends only on seed, epoch and index.
 *
 * As in random_spans_noise_mask, there is at least one span, and the number of spans is at most the
 * number of other tokens. run_t5_mlm_flax.py computes lengths without these bounds, and fails where
 * a bound would change the number of spans. */
#include "src/data/datasets/span_corruption.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/base/philox.h"

enum {
    PIECE_MIN = 2,
    PIECE_MAX = 1 << 30 /* a batch counts tokens in int32 */
};

/* ---- lengths ---- */

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t most(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static fsdp_span_lengths lengths_of(const fsdp_span_corruption *c, int64_t piece)
{
    const int64_t noise =
        least(most((int64_t)rint((double)piece * c->noise_density), 1), piece - 1);
    const int64_t others = piece - noise;
    const int64_t spans =
        most((int64_t)rint((double)least(noise, others) / c->mean_noise_span_length), 1);
    return (fsdp_span_lengths){.piece = piece,
                               .noise = noise,
                               .spans = spans,
                               .inputs = others + spans + 1,
                               .targets = noise + spans + 1};
}

/* Return the lengths for the longest piece whose inputs have at most `inputs` tokens. The piece is
 * found by bisection, because a longer piece never has shorter inputs. */
static fsdp_span_lengths longest(const fsdp_span_corruption *c, int64_t inputs)
{
    int64_t fits = PIECE_MIN, above = PIECE_MAX + 1;
    while (above - fits > 1) {
        int64_t middle = fits + (above - fits) / 2;
        if (lengths_of(c, middle).inputs <= inputs)
            fits = middle;
        else
            above = middle;
    }
    return lengths_of(c, fits);
}

fsdp_span_corruption fsdp_span_corruption_complete(const fsdp_span_corruption *noise)
{
    fsdp_span_corruption c = noise ? *noise : (fsdp_span_corruption){0};
    if (c.noise_density == 0)
        c.noise_density = 0.15;
    if (c.mean_noise_span_length == 0)
        c.mean_noise_span_length = 3;
    return c;
}

static fsdp_status check_noise(const fsdp_span_corruption *c)
{
    if (!(c->noise_density > 0 && c->noise_density < 1))
        return fsdp_error(FSDP_ERR_INVALID, "span corruption: noise density %g is not in (0, 1)",
                          c->noise_density);
    if (!(c->mean_noise_span_length >= 1 && isfinite(c->mean_noise_span_length)))
        return fsdp_error(FSDP_ERR_INVALID,
                          "span corruption: mean noise span length %g is below 1 or not finite",
                          c->mean_noise_span_length);
    return FSDP_OK;
}

fsdp_status fsdp_span_lengths_find(const fsdp_span_corruption *c, int64_t inputs_length,
                                   fsdp_span_lengths *out)
{
    FSDP_TRY(check_noise(c));
    fsdp_span_lengths found = longest(c, inputs_length);
    /* T5's own code has a special rule for a noise_density of 0.5: the targets must not be longer
     * than the inputs. If the targets of this piece are longer, a piece that is one token shorter
     * is used. */
    if (c->noise_density == 0.5 && found.targets > found.inputs && found.piece > PIECE_MIN)
        found = lengths_of(c, found.piece - 1);
    if (found.inputs != inputs_length || found.piece >= PIECE_MAX)
        return fsdp_error(FSDP_ERR_INVALID,
                          "span corruption: no piece of text gives inputs of exactly %" PRId64
                          " tokens with noise density %g and mean span length %g; one of %" PRId64
                          " gives %" PRId64,
                          inputs_length, c->noise_density, c->mean_noise_span_length, found.piece,
                          found.inputs);
    *out = found;
    return FSDP_OK;
}

fsdp_status fsdp_span_corruption_lengths(const fsdp_span_corruption *noise, int64_t inputs_length,
                                         int64_t *tokens_length, int64_t *targets_length,
                                         int64_t *spans)
{
    const fsdp_span_corruption full = fsdp_span_corruption_complete(noise);
    fsdp_span_lengths found;
    FSDP_TRY(fsdp_span_lengths_find(&full, inputs_length, &found));
    *tokens_length = found.piece;
    if (targets_length)
        *targets_length = found.targets;
    if (spans)
        *spans = found.spans;
    return FSDP_OK;
}

/* ---- segments ---- */

/* The state while tokens are divided into segments, token by token. */
typedef struct segments {
    uint64_t key, stream, drawn;
    int64_t tokens, cuts; /* tokens and cuts that remain */
    fsdp_philox block;
} segments;

static uint32_t next_bits(segments *s)
{
    if (s->drawn % 4 == 0)
        s->block = fsdp_philox4x32(s->key, s->drawn / 4, s->stream);
    return s->block.v[s->drawn++ % 4];
}

/* Draw a random value, and return true if there is a cut before the next token. */
static bool cuts_here(segments *s)
{
    return (uint64_t)next_bits(s) * (uint64_t)s->tokens >> 32 < (uint64_t)s->cuts;
}

static int64_t next_segment(segments *s)
{
    int64_t length = 1;
    for (s->tokens--; s->tokens > 0 && !cuts_here(s); s->tokens--)
        length++;
    s->cuts--;
    return length;
}

/* ---- examples ---- */

static void append_ids(fsdp_token_list *list, const int32_t *ids, int64_t count)
{
    FSDP_ASSERT(list->len + (size_t)count <= list->cap);
    memcpy(list->ids + list->len, ids, (size_t)count * sizeof *ids);
    list->len += (size_t)count;
}

fsdp_status fsdp_span_corrupt(const fsdp_span_lengths *n, uint64_t key, const int32_t *piece,
                              int32_t first_sentinel, int32_t eos_id, fsdp_example *example)
{
    fsdp_token_list *inputs = &example->source, *targets = &example->labels;
    segments others = {.key = key, .tokens = n->piece - n->noise, .cuts = n->spans - 1};
    segments noise = {.key = key, .stream = 1, .tokens = n->noise, .cuts = n->spans - 1};
    if (!FSDP_GROW(inputs->ids, inputs->cap, (size_t)n->inputs) ||
        !FSDP_GROW(targets->ids, targets->cap, (size_t)n->targets))
        return FSDP_ERR_NOMEM;
    for (int64_t span = 0; span < n->spans; span++) {
        const int32_t sentinel = first_sentinel - (int32_t)span;
        const int64_t kept = next_segment(&others), replaced = next_segment(&noise);
        append_ids(inputs, piece, kept);
        append_ids(inputs, &sentinel, 1);
        append_ids(targets, &sentinel, 1);
        append_ids(targets, piece + kept, replaced);
        piece += kept + replaced;
    }
    append_ids(inputs, &eos_id, 1);
    append_ids(targets, &eos_id, 1);
    FSDP_ASSERT((int64_t)inputs->len == n->inputs);
    FSDP_ASSERT((int64_t)targets->len == n->targets);
    return FSDP_OK;
}
