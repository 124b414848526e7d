/* The Unigram model. A path is a way to split the piece, up to some byte, into tokens. The best
 * path through the whole piece is found by the Viterbi recurrence over byte positions. A trie of
 * all tokens finds the tokens that begin at a position. */
#include "src/text/models/unigram.h"

#include <math.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/text/models/token_work.h"
#include "src/text/models/trie.h"

typedef struct unigram {
    fsdp_token_model base;
    fsdp_vocabulary *vocabulary;
    fsdp_trie trie;
    double *scores; /* [size of the vocabulary] */
    double unknown_score;
    int32_t unk_id; /* -1: none */
    bool byte_fallback;
    int32_t byte_pieces[256];
} unigram;

static const unigram *unigram_of(const fsdp_token_model *model)
{
    return (const unigram *)model;
}

/* ---- best path ---- */

/* The best path that ends at a certain byte position. The head of this file says what a path is. */
typedef struct best {
    double score;
    uint32_t start; /* byte at which the last token of the path starts */
    int32_t id;     /* id of the last token of the path; -1: no path ends here */
} best;

/* *at is the best path found so far to a byte position. Replace it by the path (score, start, id)
 * if this path has a higher score. If both scores are equal, keep *at: it was found first, so its
 * last token begins earlier and is longer. */
static inline void update_best(best *at, double score, size_t start, int32_t id)
{
    if (at->id < 0 || score > at->score)
        *at = (best){score, (uint32_t)start, id};
}

/* For each byte position i, set ends[i] to the best path from the beginning of the piece to i. */
static fsdp_status find_paths(const unigram *model, const char *piece, size_t length, best *ends)
{
    for (size_t start = 0, step; start < length; start += step) {
        double so_far = start ? ends[start].score : 0;
        bool whole_character = false;
        uint32_t node = 0;
        step = fsdp_character_length(piece + start, length - start);
        for (size_t i = start; i < length; i++) {
            node = fsdp_trie_child(&model->trie, node, (uint8_t)piece[i]);
            if (!node)
                break;
            int32_t id = model->trie.units[node].id;
            if (id < 0)
                continue;
            update_best(&ends[i + 1], so_far + model->scores[id], start, id);
            whole_character |= i + 1 == start + step;
        }
        const best *end = &ends[start + step];
        bool is_better = end->id < 0 || so_far + model->unknown_score > end->score;
        if (whole_character || !is_better)
            continue;
        if (model->unk_id < 0)
            return fsdp_error(FSDP_ERR_FORMAT,
                              "the text contains \"%.*s\", which the vocabulary does not contain, "
                              "and the model has no unknown token (unk_id)",
                              (int)step, piece + start);
        ends[start + step] = (best){so_far + model->unknown_score, (uint32_t)start, model->unk_id};
    }
    return FSDP_OK;
}

/* ---- spans ---- */

/* Append the tokens for an unknown text, which is bytes [begin, end) of the piece: byte pieces or
 * the unknown token. */
static fsdp_status add_unknown(const unigram *model, const char *piece, size_t begin, size_t end,
                               fsdp_token_spans *spans)
{
    const unsigned char *text = (const unsigned char *)piece;
    int32_t id = fsdp_vocabulary_find(model->vocabulary, piece + begin, end - begin);
    bool has_pieces = model->byte_fallback && id < 0;
    for (size_t i = begin; i < end && has_pieces; i++)
        has_pieces = model->byte_pieces[text[i]] >= 0;
    if (!has_pieces)
        return fsdp_token_spans_add(spans, id < 0 ? model->unk_id : id, begin, end);
    for (size_t i = begin; i < end; i++)
        FSDP_TRY(fsdp_token_spans_add(spans, model->byte_pieces[text[i]], begin, end));
    return FSDP_OK;
}

/* Append the tokens of the best path through the whole piece. Adjacent unknown tokens become
 * one. */
static fsdp_status add_path(const unigram *model, fsdp_token_work *work, const char *piece,
                            size_t length, const best *ends, fsdp_token_spans *spans)
{
    size_t count = 0;
    for (size_t end = length; end > 0; end = ends[end].start)
        count++;
    /* the positions at which the tokens of the path end, in ascending order */
    uint32_t *stops = fsdp_token_work_scratch(work, 1, count * sizeof *stops);
    if (!stops)
        return FSDP_ERR_NOMEM;
    size_t at = count;
    for (size_t end = length; end > 0; end = ends[end].start)
        stops[--at] = (uint32_t)end;
    for (size_t i = 0, begin = 0; i < count; begin = stops[i], i++) {
        int32_t id = ends[stops[i]].id;
        if (id != model->unk_id) {
            FSDP_TRY(fsdp_token_spans_add(spans, id, begin, stops[i]));
            continue;
        }
        while (i + 1 < count && ends[stops[i + 1]].id == model->unk_id)
            i++;
        FSDP_TRY(add_unknown(model, piece, begin, stops[i], spans));
    }
    return FSDP_OK;
}

/* Split a piece into spans. This is the fsdp_split_fn of the model. */
static fsdp_status split(const fsdp_token_model *base, fsdp_token_work *work, const char *piece,
                         size_t length, fsdp_token_spans *spans)
{
    const unigram *model = unigram_of(base);
    best *ends = fsdp_token_work_scratch(work, 0, (length + 1) * sizeof *ends);
    if (!ends)
        return FSDP_ERR_NOMEM;
    for (size_t i = 0; i <= length; i++)
        ends[i] = (best){.id = -1};
    FSDP_TRY(find_paths(model, piece, length, ends));
    return add_path(model, work, piece, length, ends, spans);
}

static fsdp_status encode(const fsdp_token_model *base, fsdp_token_work *work, const char *piece,
                          size_t length, fsdp_token_spans *spans)
{
    return fsdp_token_work_encode(base, work, split, piece, length, 0, spans);
}

static fsdp_status encode_ids(const fsdp_token_model *base, fsdp_token_work *work,
                              const char *piece, size_t length, fsdp_token_list *list)
{
    return fsdp_token_work_encode_ids(base, work, split, piece, length, list);
}

/* ---- properties ---- */

static int32_t id_of(const fsdp_token_model *model, const char *text, size_t length)
{
    return fsdp_vocabulary_find(unigram_of(model)->vocabulary, text, length);
}

static const char *text_of(const fsdp_token_model *model, int32_t id, size_t *length)
{
    return fsdp_vocabulary_text(unigram_of(model)->vocabulary, id, length);
}

static int32_t size(const fsdp_token_model *model)
{
    return fsdp_vocabulary_size(unigram_of(model)->vocabulary);
}

static int32_t unk_id(const fsdp_token_model *model)
{
    return unigram_of(model)->unk_id;
}

static void destroy(fsdp_token_model *base)
{
    unigram *model = (unigram *)base;
    fsdp_vocabulary_destroy(model->vocabulary);
    fsdp_trie_fini(&model->trie);
    fsdp_free(model->scores);
    fsdp_free(model);
}

static const fsdp_token_model_ops unigram_ops = {
    .type = "Unigram",
    .encode = encode,
    .encode_ids = encode_ids,
    .id_of = id_of,
    .text_of = text_of,
    .size = size,
    .unk_id = unk_id,
    .destroy = destroy,
};

/* ---- creating ---- */

static fsdp_status check_vocabulary(const unigram *model, int64_t unk)
{
    int32_t count = fsdp_vocabulary_size(model->vocabulary);
    size_t length;
    if (unk >= count)
        return fsdp_error(FSDP_ERR_FORMAT, "unk_id %lld: the vocabulary has %d tokens",
                          (long long)unk, (int)count);
    for (int32_t id = 0; id < count; id++) {
        const char *text = fsdp_vocabulary_text(model->vocabulary, id, &length);
        if (!text)
            return fsdp_error(FSDP_ERR_FORMAT, "there is no token with the id %d", (int)id);
        if (!isfinite(model->scores[id]))
            return fsdp_error(FSDP_ERR_FORMAT, "the token \"%.80s\" (id %d) has the score %g", text,
                              (int)id, model->scores[id]);
    }
    return FSDP_OK;
}

static fsdp_status build_trie(unigram *model)
{
    int32_t count = fsdp_vocabulary_size(model->vocabulary);
    fsdp_trie_key *keys = fsdp_calloc((size_t)count, sizeof *keys);
    if (!keys)
        return FSDP_ERR_NOMEM;
    size_t n = 0;
    for (int32_t id = 0; id < count; id++) {
        fsdp_trie_key key = {.id = id};
        key.text = fsdp_vocabulary_text(model->vocabulary, id, &key.length);
        if (key.length)
            keys[n++] = key;
    }
    fsdp_status status = fsdp_trie_create(keys, n, &model->trie);
    fsdp_free(keys);
    return status;
}

static void set_fingerprint(unigram *model)
{
    int32_t count = fsdp_vocabulary_size(model->vocabulary);
    uint64_t h =
        fsdp_hash_bytes(fsdp_vocabulary_fingerprint(model->vocabulary), (const char *)model->scores,
                        (size_t)count * sizeof *model->scores);
    h = fsdp_hash_step(h, (uint64_t)(uint32_t)model->unk_id);
    model->base.fingerprint = fsdp_hash_step(h, model->byte_fallback ? 11 : 10);
}

static fsdp_status init(unigram *model, const double *scores, const fsdp_unigram_options *options)
{
    const double unknown_penalty = 10; /* the same number as kUnkPenalty in SentencePiece */
    size_t count = (size_t)fsdp_vocabulary_size(model->vocabulary);
    if (!(model->scores = fsdp_calloc(count, sizeof *model->scores)))
        return FSDP_ERR_NOMEM;
    if (count)
        memcpy(model->scores, scores, count * sizeof *scores);
    FSDP_TRY(check_vocabulary(model, options->unk_id));
    double lowest = HUGE_VAL;
    for (size_t i = 0; i < count; i++)
        lowest = scores[i] < lowest ? scores[i] : lowest;
    model->unknown_score = lowest - unknown_penalty;
    model->unk_id = options->unk_id < 0 ? -1 : (int32_t)options->unk_id;
    model->byte_fallback = options->byte_fallback;
    for (int i = 0; i < 256; i++)
        model->byte_pieces[i] = fsdp_vocabulary_byte_piece(model->vocabulary, (uint8_t)i);
    FSDP_TRY(build_trie(model));
    set_fingerprint(model);
    return FSDP_OK;
}

fsdp_status fsdp_unigram_create(fsdp_vocabulary *vocabulary, const double *scores,
                                const fsdp_unigram_options *options, fsdp_token_model **out)
{
    unigram *model = fsdp_calloc(1, sizeof *model);
    if (!model) {
        fsdp_vocabulary_destroy(vocabulary);
        return FSDP_ERR_NOMEM;
    }
    model->base.ops = &unigram_ops;
    model->vocabulary = vocabulary;
    fsdp_status status = init(model, scores, options);
    if (status != FSDP_OK) {
        destroy(&model->base);
        return status;
    }
    *out = &model->base;
    return FSDP_OK;
}
