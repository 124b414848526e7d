/* See token_rules.h. */
#include <math.h>
#include <string.h>

#include "src/base/assert.h"
#include "src/models/token_rules.h"

/* Set *id to the id `node`, which becomes element number `at` of an array of `room` elements.
 * Return FSDP_ERR_UNSUPPORTED if the array is too small. */
static fsdp_status read_id(fsdp_json_node node, int32_t at, int32_t room, int32_t *id)
{
    int64_t value;
    if (at >= room)
        return fsdp_error(FSDP_ERR_UNSUPPORTED, "more than %d ids", (int)room);
    FSDP_TRY(fsdp_json_get_i64(node, NULL, 0, INT32_MAX, &value));
    *id = (int32_t)value;
    return FSDP_OK;
}

static fsdp_status add_key(fsdp_status status, fsdp_json_node root, const char *key)
{
    if (status == FSDP_ERR_UNSUPPORTED)
        fsdp_error_context(status, "%s: %s", fsdp_json_name(root.doc), key);
    return status;
}

static fsdp_status read_ids(fsdp_json_node value, fsdp_rule_ids *ids)
{
    if (fsdp_json_kind_of(value) != FSDP_JSON_ARRAY) {
        FSDP_TRY(read_id(value, 0, 1, ids->ids));
        ids->n = 1;
        return FSDP_OK;
    }
    for (size_t i = 0; i < fsdp_json_len(value); i++) {
        FSDP_TRY(read_id(fsdp_json_at(value, i), ids->n, FSDP_LENGTH(ids->ids),
                         &ids->ids[ids->n < (int32_t)FSDP_LENGTH(ids->ids) ? ids->n : 0]));
        ids->n++;
    }
    return FSDP_OK;
}

fsdp_status fsdp_rule_ids_read(fsdp_json_node root, const char *key, fsdp_rule_ids *out)
{
    fsdp_rule_ids ids = {.n = 0};
    if (!fsdp_json_has(root, key))
        return FSDP_OK;
    FSDP_TRY(add_key(read_ids(fsdp_json_find(root, key), &ids), root, key));
    *out = ids;
    return FSDP_OK;
}

static fsdp_status read_word(fsdp_json_node word, fsdp_rule_words *words)
{
    const int32_t room = (int32_t)FSDP_LENGTH(words->ids) - 1;
    if (fsdp_json_kind_of(word) != FSDP_JSON_ARRAY || fsdp_json_len(word) == 0)
        return fsdp_json_mismatch(word, NULL, "a list of token ids");
    for (size_t i = 0; i < fsdp_json_len(word); i++) {
        int32_t id = 0;
        FSDP_TRY(read_id(fsdp_json_at(word, i), words->n, room, &id));
        words->ids[words->n++] = id;
    }
    words->ids[words->n++] = FSDP_END_OF_WORD;
    return FSDP_OK;
}

fsdp_status fsdp_rule_words_read(fsdp_json_node root, const char *key, fsdp_rule_words *out)
{
    fsdp_json_node list;
    fsdp_rule_words words = {.n = 0};
    if (!fsdp_json_has(root, key))
        return FSDP_OK;
    FSDP_TRY(fsdp_json_get_array(root, key, &list));
    for (size_t i = 0; i < fsdp_json_len(list); i++)
        FSDP_TRY(add_key(read_word(fsdp_json_at(list, i), &words), root, key));
    *out = words;
    return FSDP_OK;
}

/* If an earlier sequence of `biases` equals the last sequence, give the earlier one the number of
 * the last one, and remove the last one. */
static void merge_last(fsdp_rule_biases *biases)
{
    fsdp_rule_words *words = &biases->words;
    int32_t last = words->n - 1;
    while (last > 0 && words->ids[last - 1] != FSDP_END_OF_WORD)
        last--;
    const int32_t length = words->n - last;
    for (int32_t i = 0, at = 0; at < last; i++) {
        const int32_t begin = at;
        while (words->ids[at++] != FSDP_END_OF_WORD)
            continue;
        if (at - begin != length ||
            memcmp(words->ids + begin, words->ids + last, (size_t)length * sizeof *words->ids) != 0)
            continue;
        biases->biases[i] = biases->biases[--biases->n];
        words->n = last;
        return;
    }
}

static fsdp_status read_bias(fsdp_json_node pair, fsdp_rule_biases *biases)
{
    double bias;
    if (fsdp_json_kind_of(pair) != FSDP_JSON_ARRAY || fsdp_json_len(pair) != 2)
        return fsdp_json_mismatch(pair, NULL, "a list of token ids and a number: [[1, 2], -3.5]");
    if (biases->n == (int32_t)FSDP_LENGTH(biases->biases))
        return fsdp_error(FSDP_ERR_UNSUPPORTED, "more than %d sequences", FSDP_MAX_RULE_IDS);
    FSDP_TRY(read_word(fsdp_json_at(pair, 0), &biases->words));
    FSDP_TRY(fsdp_json_get_f64(fsdp_json_at(pair, 1), NULL, &bias));
    biases->biases[biases->n++] = (float)bias;
    merge_last(biases);
    return FSDP_OK;
}

fsdp_status fsdp_rule_biases_read(fsdp_json_node root, const char *key, fsdp_rule_biases *out)
{
    fsdp_json_node list;
    fsdp_rule_biases biases = {.n = 0};
    if (!fsdp_json_has(root, key))
        return FSDP_OK;
    FSDP_TRY(fsdp_json_get_array(root, key, &list));
    for (size_t i = 0; i < fsdp_json_len(list); i++)
        FSDP_TRY(add_key(read_bias(fsdp_json_at(list, i), &biases), root, key));
    *out = biases;
    return FSDP_OK;
}

fsdp_status fsdp_rule_texts_add(fsdp_rule_texts *texts, const char *text, size_t length)
{
    if (length == 0 || memchr(text, 0, length))
        return fsdp_error(FSDP_ERR_INVALID, "a text that ends a sequence must not %s",
                          length ? "contain NUL" : "be empty");
    if (length >= FSDP_LENGTH(texts->bytes) - (size_t)texts->n_bytes)
        return fsdp_error(FSDP_ERR_UNSUPPORTED, "more than %d bytes", FSDP_MAX_STOP_BYTES);
    memcpy(texts->bytes + texts->n_bytes, text, length);
    texts->bytes[(size_t)texts->n_bytes + length] = 0;
    texts->n_bytes += (int32_t)length + 1;
    return FSDP_OK;
}

static fsdp_status read_text(fsdp_json_node node, fsdp_rule_texts *texts)
{
    const char *text;
    FSDP_TRY(fsdp_json_get_str(node, NULL, &text));
    if (!*text)
        return fsdp_json_mismatch(node, NULL, "a text that is not empty");
    return fsdp_rule_texts_add(texts, text, strlen(text));
}

fsdp_status fsdp_rule_texts_read(fsdp_json_node root, const char *key, fsdp_rule_texts *out)
{
    fsdp_rule_texts texts = {.n_bytes = 0};
    if (!fsdp_json_has(root, key))
        return FSDP_OK;
    const fsdp_json_node value = fsdp_json_find(root, key);
    if (fsdp_json_kind_of(value) != FSDP_JSON_ARRAY)
        FSDP_TRY(add_key(read_text(value, &texts), root, key));
    for (size_t i = 0; fsdp_json_kind_of(value) == FSDP_JSON_ARRAY && i < fsdp_json_len(value); i++)
        FSDP_TRY(add_key(read_text(fsdp_json_at(value, i), &texts), root, key));
    *out = texts;
    return FSDP_OK;
}

fsdp_status fsdp_length_decay_read(fsdp_json_node root, const char *key, fsdp_length_decay *out)
{
    fsdp_json_node list;
    fsdp_length_decay decay;
    if (!fsdp_json_has(root, key))
        return FSDP_OK;
    FSDP_TRY(fsdp_json_get_array(root, key, &list));
    if (fsdp_json_len(list) != 2)
        return fsdp_json_mismatch(root, key, "two numbers, [start, factor]");
    FSDP_TRY(fsdp_json_get_i64(fsdp_json_at(list, 0), NULL, 0, INT32_MAX, &decay.start));
    FSDP_TRY(fsdp_json_get_f64(fsdp_json_at(list, 1), NULL, &decay.factor));
    if (!(decay.factor > 0))
        return fsdp_json_mismatch(fsdp_json_at(list, 1), NULL, "a number above 0");
    *out = decay;
    return FSDP_OK;
}

fsdp_status fsdp_rule_ids_check(const char *key, const int32_t *ids, int32_t n, int64_t vocab_size)
{
    for (int32_t i = 0; i < n; i++)
        if (ids[i] >= vocab_size)
            return fsdp_error(FSDP_ERR_INVALID, "%s has the id %d, but the model's ids end at %lld",
                              key, (int)ids[i], (long long)vocab_size - 1);
    return FSDP_OK;
}
