/* Makes models from JSON. The fields are those that the tokenizers library reads and writes. */
#include "src/text/models/model_json.h"

#include <stdlib.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/base/repr.h"
#include "src/text/models/bpe.h"
#include "src/text/models/unigram.h"
#include "src/text/models/vocabulary_json.h"
#include "src/text/models/wordlevel.h"
#include "src/text/models/wordpiece.h"

/* Return FSDP_ERR_UNSUPPORTED if the model has a field that is not in `names` [count]. */
static fsdp_status check_fields(fsdp_json_node model, const char *type, const char *const *names,
                                size_t count)
{
    for (fsdp_json_node v = fsdp_json_first(model); v.value; v = fsdp_json_next(v)) {
        bool known = strcmp(v.key, "type") == 0;
        for (size_t i = 0; i < count && !known; i++)
            known = strcmp(v.key, names[i]) == 0;
        if (!known)
            return fsdp_error(FSDP_ERR_UNSUPPORTED,
                              "%s: model.%s: a %s model with this field is not supported",
                              fsdp_json_name(model.doc), v.key, type);
    }
    return FSDP_OK;
}

static fsdp_status read_vocabulary(fsdp_json_node model, fsdp_vocabulary **out)
{
    fsdp_json_node vocab;
    FSDP_TRY(fsdp_json_get_object(model, "vocab", &vocab));
    return fsdp_vocabulary_from_json(vocab, "model.vocab", out);
}

/* ---- BPE ---- */

typedef struct merge_list {
    fsdp_bpe_merge *items; /* [len]; the capacity of the array suffices for all merges of the JSON
                            * list */
    size_t len;
} merge_list;

/* Set *left, *left_length and *right to the two tokens of a merge, which is "left right" or
 * ["left", "right"]. */
static fsdp_status split_merge(fsdp_json_node merge, const char **left, size_t *left_length,
                               const char **right)
{
    static const char expected[] = "two tokens, \"left right\" or [\"left\", \"right\"]";
    if (fsdp_json_kind_of(merge) == FSDP_JSON_ARRAY) {
        if (fsdp_json_len(merge) != 2)
            return fsdp_json_mismatch(merge, NULL, expected);
        FSDP_TRY(fsdp_json_get_str(fsdp_json_at(merge, 0), NULL, left));
        FSDP_TRY(fsdp_json_get_str(fsdp_json_at(merge, 1), NULL, right));
        *left_length = strlen(*left);
        return FSDP_OK;
    }
    if (fsdp_json_kind_of(merge) != FSDP_JSON_STRING)
        return fsdp_json_mismatch(merge, NULL, expected);
    FSDP_TRY(fsdp_json_get_str(merge, NULL, left));
    const char *space = strchr(*left, ' ');
    if (!space || strchr(space + 1, ' '))
        return fsdp_json_mismatch(merge, NULL, expected);
    *left_length = (size_t)(space - *left);
    *right = space + 1;
    return FSDP_OK;
}

static fsdp_status add_merges(fsdp_json_node merges, const fsdp_vocabulary *vocabulary,
                              const fsdp_bpe_options *options, merge_list *list)
{
    static const char version[] = "#version";
    for (size_t i = 0; i < fsdp_json_len(merges); i++) {
        fsdp_json_node merge = fsdp_json_at(merges, i);
        const char *left, *right = NULL;
        size_t left_length = 0;
        /* In old files, the first merge is the first line of merges.txt, which has the version.
         * Skip it. */
        if (fsdp_json_kind_of(merge) == FSDP_JSON_STRING) {
            FSDP_TRY(fsdp_json_get_str(merge, NULL, &left));
            if (strncmp(left, version, sizeof version - 1) == 0)
                continue;
        }
        FSDP_TRY(split_merge(merge, &left, &left_length, &right));
        fsdp_status status =
            fsdp_bpe_find_merge(vocabulary, options, left, left_length, right, strlen(right),
                                (uint32_t)list->len, &list->items[list->len]);
        fsdp_error_context(status, "%s: model.merges[%zu]", fsdp_json_name(merges.doc), i);
        if (status != FSDP_OK)
            return status;
        list->len++;
    }
    return FSDP_OK;
}

static fsdp_status check_dropout(fsdp_json_node model)
{
    double dropout;
    FSDP_TRY(fsdp_json_opt_f64(model, "dropout", 0, &dropout));
    if (dropout != 0)
        return fsdp_error(FSDP_ERR_UNSUPPORTED,
                          "%s: model.dropout: %g: BPE dropout, which splits text at random, is not "
                          "supported; set it to null",
                          fsdp_json_name(model.doc), dropout);
    return FSDP_OK;
}

static fsdp_status read_bpe_options(fsdp_json_node model, fsdp_bpe_options *options)
{
    FSDP_TRY(check_dropout(model));
    FSDP_TRY(fsdp_json_opt_str(model, "unk_token", NULL, &options->unk_token));
    FSDP_TRY(fsdp_json_opt_str(model, "continuing_subword_prefix", NULL,
                               &options->continuing_subword_prefix));
    FSDP_TRY(fsdp_json_opt_str(model, "end_of_word_suffix", NULL, &options->end_of_word_suffix));
    FSDP_TRY(fsdp_json_opt_bool(model, "fuse_unk", false, &options->fuse_unk));
    FSDP_TRY(fsdp_json_opt_bool(model, "byte_fallback", false, &options->byte_fallback));
    return fsdp_json_opt_bool(model, "ignore_merges", false, &options->ignore_merges);
}

static fsdp_status make_bpe(fsdp_json_node model, bool raw_bytes, fsdp_token_model **out)
{
    static const char *const fields[] = {"dropout",
                                         "unk_token",
                                         "continuing_subword_prefix",
                                         "end_of_word_suffix",
                                         "fuse_unk",
                                         "byte_fallback",
                                         "ignore_merges",
                                         "vocab",
                                         "merges"};
    fsdp_bpe_options options = {.raw_bytes = raw_bytes};
    fsdp_json_node merges;
    fsdp_vocabulary *vocabulary = NULL;
    FSDP_TRY(check_fields(model, "BPE", fields, FSDP_LENGTH(fields)));
    FSDP_TRY(read_bpe_options(model, &options));
    FSDP_TRY(fsdp_json_get_array(model, "merges", &merges));
    FSDP_TRY(read_vocabulary(model, &vocabulary));
    merge_list list = {.items = fsdp_calloc(fsdp_json_len(merges), sizeof *list.items)};
    fsdp_status status =
        list.items ? add_merges(merges, vocabulary, &options, &list) : FSDP_ERR_NOMEM;
    if (status == FSDP_OK) {
        status = fsdp_bpe_create(vocabulary, list.items, list.len, &options, out);
        fsdp_error_context(status, "%s: model", fsdp_json_name(model.doc));
    } else {
        fsdp_vocabulary_destroy(vocabulary);
    }
    fsdp_free(list.items);
    return status;
}

/* ---- WordPiece, WordLevel ---- */

static fsdp_status make_wordpiece(fsdp_json_node model, bool raw_bytes, fsdp_token_model **out)
{
    static const char *const fields[] = {"unk_token", "continuing_subword_prefix",
                                         "max_input_chars_per_word", "vocab"};
    fsdp_wordpiece_options options;
    fsdp_vocabulary *vocabulary = NULL;
    (void)raw_bytes;
    FSDP_TRY(check_fields(model, "WordPiece", fields, FSDP_LENGTH(fields)));
    FSDP_TRY(fsdp_json_get_str(model, "unk_token", &options.unk_token));
    FSDP_TRY(
        fsdp_json_get_str(model, "continuing_subword_prefix", &options.continuing_subword_prefix));
    FSDP_TRY(fsdp_json_get_i64(model, "max_input_chars_per_word", 0, INT64_MAX,
                               &options.max_input_chars_per_word));
    FSDP_TRY(read_vocabulary(model, &vocabulary));
    return fsdp_wordpiece_create(vocabulary, &options, out);
}

static fsdp_status make_wordlevel(fsdp_json_node model, bool raw_bytes, fsdp_token_model **out)
{
    static const char *const fields[] = {"unk_token", "vocab"};
    const char *unk_token;
    fsdp_vocabulary *vocabulary = NULL;
    (void)raw_bytes;
    FSDP_TRY(check_fields(model, "WordLevel", fields, FSDP_LENGTH(fields)));
    FSDP_TRY(fsdp_json_get_str(model, "unk_token", &unk_token));
    FSDP_TRY(read_vocabulary(model, &vocabulary));
    return fsdp_wordlevel_create(vocabulary, unk_token, out);
}

/* ---- Unigram ---- */

/* Return the double that the tokenizers library gets when it parses the shortest decimal spelling
 * of `score`. Its JSON parser converts the digits to a double and then divides it by a power of
 * ten, so the last bit may differ from that of `score`. Scores must have the same bits here as in
 * that library: if two ways to split a text are equally probable, the rounding of the sums decides
 * between them. */
static double score_as_tokenizers_reads_it(double score)
{
    static const double powers[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                    1e8,  1e9,  1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
                                    1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
    char text[FSDP_REPR_BYTES];
    uint64_t digits = 0;
    long exponent = 0;
    bool fraction = false;
    fsdp_f64_repr(score, text);
    for (const char *p = text; *p; p++) {
        if (*p == 'e') {
            exponent += strtol(p + 1, NULL, 10);
            break;
        }
        fraction |= *p == '.';
        if (*p >= '0' && *p <= '9') {
            digits = digits * 10 + (uint64_t)(*p - '0');
            exponent -= fraction;
        }
    }
    /* This score is not the logarithm of a probability, whose exponent would be from -22 to 22.
     * Leave the score as it is. */
    if (exponent < -22 || exponent > 22)
        return score;
    double value = (double)digits;
    value = exponent < 0 ? value / powers[-exponent] : value * powers[exponent];
    return score < 0 ? -value : value;
}

static fsdp_status add_pieces(fsdp_json_node vocab, fsdp_vocabulary *vocabulary, double *scores)
{
    for (size_t i = 0; i < fsdp_json_len(vocab); i++) {
        fsdp_json_node entry = fsdp_json_at(vocab, i);
        const char *text;
        if (fsdp_json_kind_of(entry) != FSDP_JSON_ARRAY || fsdp_json_len(entry) != 2)
            return fsdp_json_mismatch(entry, NULL, "a list of a token and its score");
        FSDP_TRY(fsdp_json_get_str(fsdp_json_at(entry, 0), NULL, &text));
        FSDP_TRY(fsdp_json_get_f64(fsdp_json_at(entry, 1), NULL, &scores[i]));
        scores[i] = score_as_tokenizers_reads_it(scores[i]);
        fsdp_status status = fsdp_vocabulary_add(vocabulary, text, strlen(text), (int64_t)i);
        fsdp_error_context(status, "%s: model.vocab[%zu]", fsdp_json_name(vocab.doc), i);
        if (status != FSDP_OK)
            return status;
    }
    return FSDP_OK;
}

static fsdp_status read_unk_id(fsdp_json_node model, size_t size, int64_t *unk_id)
{
    FSDP_TRY(fsdp_json_opt_i64(model, "unk_id", 0, INT64_MAX, -1, unk_id));
    if (*unk_id >= (int64_t)size)
        return fsdp_json_mismatch(model, "unk_id", "an index of model.vocab, which has %zu entries",
                                  size);
    return FSDP_OK;
}

static fsdp_status make_unigram(fsdp_json_node model, bool raw_bytes, fsdp_token_model **out)
{
    static const char *const fields[] = {"unk_id", "vocab", "byte_fallback"};
    fsdp_unigram_options options;
    fsdp_json_node vocab;
    fsdp_vocabulary *vocabulary = NULL;
    (void)raw_bytes;
    FSDP_TRY(check_fields(model, "Unigram", fields, FSDP_LENGTH(fields)));
    FSDP_TRY(fsdp_json_get_array(model, "vocab", &vocab));
    FSDP_TRY(read_unk_id(model, fsdp_json_len(vocab), &options.unk_id));
    FSDP_TRY(fsdp_json_opt_bool(model, "byte_fallback", false, &options.byte_fallback));
    FSDP_TRY(fsdp_vocabulary_create(&vocabulary));
    double *scores = fsdp_calloc(fsdp_json_len(vocab), sizeof *scores);
    fsdp_status status = scores ? add_pieces(vocab, vocabulary, scores) : FSDP_ERR_NOMEM;
    if (status == FSDP_OK) {
        status = fsdp_unigram_create(vocabulary, scores, &options, out);
        fsdp_error_context(status, "%s: model", fsdp_json_name(model.doc));
    } else {
        fsdp_vocabulary_destroy(vocabulary);
    }
    fsdp_free(scores);
    return status;
}

/* ---- types ---- */

typedef struct model_type {
    const char *name;
    fsdp_status (*make)(fsdp_json_node model, bool raw_bytes, fsdp_token_model **out);
} model_type;

static const model_type types[] = {
    {"BPE", make_bpe},
    {"WordPiece", make_wordpiece},
    {"WordLevel", make_wordlevel},
    {"Unigram", make_unigram},
};

/* Return the type of a model that has no field "type", by the rules of the tokenizers library. */
static const char *guess_type(fsdp_json_node model)
{
    if (fsdp_json_has(model, "merges"))
        return "BPE";
    if (fsdp_json_has(model, "max_input_chars_per_word"))
        return "WordPiece";
    if (fsdp_json_has(model, "unk_token"))
        return "WordLevel";
    return "Unigram";
}

fsdp_status fsdp_token_model_from_json(fsdp_json_node model, bool raw_bytes, fsdp_token_model **out)
{
    const char *name;
    if (fsdp_json_kind_of(model) != FSDP_JSON_OBJECT)
        return fsdp_json_mismatch(model, NULL, "an object");
    FSDP_TRY(fsdp_json_opt_str(model, "type", guess_type(model), &name));
    for (size_t i = 0; i < FSDP_LENGTH(types); i++) {
        if (strcmp(types[i].name, name) != 0)
            continue;
        if (raw_bytes && types[i].make != make_bpe)
            return fsdp_error(FSDP_ERR_UNSUPPORTED,
                              "%s: model.type: %s models do not work on bytes",
                              fsdp_json_name(model.doc), name);
        return types[i].make(model, raw_bytes, out);
    }
    return fsdp_json_mismatch(model, "type", "BPE, WordPiece, WordLevel or Unigram");
}
