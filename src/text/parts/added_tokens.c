/* Finds added tokens in a text. There are two sorted lists of token texts: those that are searched
 * in the normalized text, and those that are searched in the original text. At each byte of the
 * text that is the first byte of some token, a sorted list is narrowed down, byte by byte, to the
 * tokens that match the text there. The longest of these tokens is found. */
#include "src/text/parts/added_tokens.h"

#include <stdlib.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/text/chars/utf8.h"
#include "src/text/models/vocabulary.h"

/* The text of an added token, for which the texts to encode are searched. */
typedef struct pattern {
    const char *text; /* [length]; borrowed from its token */
    size_t length;
    uint32_t token; /* index of the token in fsdp_added_tokens.items that has this text */
} pattern;

typedef struct pattern_list {
    pattern *items; /* sorted by text */
    size_t len;
    bool first[256]; /* first[b]: at least one text begins with byte b */
    int only;        /* if all texts begin with the same byte: this byte; otherwise -1 */
} pattern_list;

struct fsdp_added_tokens {
    const fsdp_char_classes *classes;
    const fsdp_token_model *model;
    const fsdp_normalizer *normalizer;
    fsdp_normalizer_work *work; /* for normalize(); NULL until it is first needed */
    fsdp_added_token *items;
    size_t len, cap;
    /* the texts of all tokens that were ever added as special tokens; the ids of this vocabulary
     * are not used */
    fsdp_vocabulary *special;
    fsdp_vocabulary *texts; /* maps the text of a token to the token's index in `items` */
    /* [len]: the indices of `items`, sorted by id; NULL before fsdp_added_tokens_finish() is
     * called */
    uint32_t *by_id;
    int32_t size; /* largest id of the model's and the added tokens + 1 */
    /* [0]: texts that are searched in the original text; [1]: texts that are searched in the
     * normalized text */
    pattern_list lists[2];
};

/* ---- adding ---- */

fsdp_status fsdp_added_tokens_create(const fsdp_char_classes *classes,
                                     const fsdp_token_model *model,
                                     const fsdp_normalizer *normalizer, fsdp_added_tokens **out)
{
    fsdp_added_tokens *tokens = fsdp_calloc(1, sizeof *tokens);
    if (!tokens)
        return FSDP_ERR_NOMEM;
    tokens->classes = classes;
    tokens->model = model;
    tokens->normalizer = normalizer;
    tokens->size = model->ops->size(model);
    fsdp_status status = fsdp_vocabulary_create(&tokens->special);
    if (status == FSDP_OK)
        status = fsdp_vocabulary_create(&tokens->texts);
    if (status != FSDP_OK) {
        fsdp_added_tokens_destroy(tokens);
        return status;
    }
    *out = tokens;
    return FSDP_OK;
}

static void clear_lists(fsdp_added_tokens *tokens)
{
    fsdp_free(tokens->by_id);
    fsdp_free(tokens->lists[0].items);
    fsdp_free(tokens->lists[1].items);
    tokens->by_id = NULL;
    tokens->lists[0] = tokens->lists[1] = (pattern_list){.only = -1};
}

void fsdp_added_tokens_destroy(fsdp_added_tokens *tokens)
{
    if (!tokens)
        return;
    clear_lists(tokens);
    for (size_t i = 0; i < tokens->len; i++) {
        fsdp_free(tokens->items[i].text);
        fsdp_free(tokens->items[i].normalized_text);
    }
    fsdp_free(tokens->items);
    fsdp_vocabulary_destroy(tokens->special);
    fsdp_vocabulary_destroy(tokens->texts);
    fsdp_normalizer_work_destroy(tokens->work);
    fsdp_free(tokens);
}

/* Set *text to the result of the normalizer for the text `from` of a token, or to NULL if the
 * normalizer does not change it. */
static fsdp_status normalize(fsdp_added_tokens *tokens, const char *from, char **text)
{
    *text = NULL;
    if (!tokens->normalizer)
        return FSDP_OK;
    if (!tokens->work)
        FSDP_TRY(fsdp_normalizer_work_create(&tokens->work));
    fsdp_text_view view = {.data = from, .len = strlen(from)}, normalized;
    FSDP_TRY(fsdp_normalizer_apply(tokens->normalizer, tokens->work, &view, true, &normalized));
    if (normalized.len == view.len && memcmp(normalized.data, from, view.len) == 0)
        return FSDP_OK;
    *text = fsdp_strndup(normalized.data, normalized.len);
    return *text ? FSDP_OK : FSDP_ERR_NOMEM;
}

static fsdp_status mark_special(fsdp_added_tokens *tokens, const char *text)
{
    const size_t length = strlen(text);
    if (fsdp_vocabulary_find(tokens->special, text, length) >= 0)
        return FSDP_OK;
    return fsdp_vocabulary_add(tokens->special, text, length,
                               fsdp_vocabulary_size(tokens->special));
}

static fsdp_status append_token(fsdp_added_tokens *tokens, const char *text,
                                fsdp_added_token **added)
{
    if (!FSDP_GROW(tokens->items, tokens->cap, tokens->len + 1))
        return FSDP_ERR_NOMEM;
    fsdp_added_token token = {.text = fsdp_strdup(text)};
    if (!token.text)
        return FSDP_ERR_NOMEM;
    token.id = tokens->model->ops->id_of(tokens->model, text, strlen(text));
    if (token.id < 0)
        token.id = tokens->size;
    if (token.id > FSDP_TOKEN_ID_MAX) {
        fsdp_free(token.text);
        return fsdp_error(FSDP_ERR_FORMAT, "the added token '%.100s' would have an id above %d",
                          text, (int)FSDP_TOKEN_ID_MAX);
    }
    fsdp_status status =
        fsdp_vocabulary_add(tokens->texts, text, strlen(text), (int64_t)tokens->len);
    if (status != FSDP_OK) {
        fsdp_free(token.text);
        return status;
    }
    tokens->size = token.id < tokens->size ? tokens->size : token.id + 1;
    tokens->items[tokens->len] = token;
    *added = &tokens->items[tokens->len++];
    return FSDP_OK;
}

fsdp_status fsdp_added_tokens_add(fsdp_added_tokens *tokens, const fsdp_added_token *token,
                                  int32_t *id)
{
    *id = -1;
    if (!*token->text)
        return FSDP_OK;
    clear_lists(tokens);
    const int32_t index = fsdp_vocabulary_find(tokens->texts, token->text, strlen(token->text));
    fsdp_added_token *added = index >= 0 ? &tokens->items[index] : NULL;
    if (!added)
        FSDP_TRY(append_token(tokens, token->text, &added));
    if (token->special)
        FSDP_TRY(mark_special(tokens, token->text));
    if (token->normalized) {
        char *text;
        FSDP_TRY(normalize(tokens, token->text, &text));
        /* If the normalizer does not change the text, a normalized_text from an earlier call is
         * kept. In the tokenizers library, too, the token is still decoded to that text. */
        if (text) {
            fsdp_free(added->normalized_text);
            added->normalized_text = text;
        }
    }
    added->special = token->special;
    added->single_word = token->single_word;
    added->lstrip = token->lstrip;
    added->rstrip = token->rstrip;
    added->normalized = token->normalized;
    *id = added->id;
    return FSDP_OK;
}

/* ---- sorted lists ---- */

static int compare_texts(const char *a, size_t a_length, const char *b, size_t b_length)
{
    const int order = memcmp(a, b, a_length < b_length ? a_length : b_length);
    return order ? order : (a_length > b_length) - (a_length < b_length);
}

static int compare_patterns(const void *a, const void *b)
{
    const pattern *x = a, *y = b;
    return compare_texts(x->text, x->length, y->text, y->length);
}

static int compare_token_ids(const void *a, const void *b, void *items)
{
    const fsdp_added_token *all = items;
    const int32_t x = all[*(const uint32_t *)a].id, y = all[*(const uint32_t *)b].id;
    return (x > y) - (x < y);
}

static fsdp_status make_list(fsdp_added_tokens *tokens, bool normalized)
{
    pattern_list *list = &tokens->lists[normalized];
    *list = (pattern_list){.items = fsdp_calloc(tokens->len, sizeof *list->items), .only = -1};
    if (!list->items)
        return FSDP_ERR_NOMEM;
    int firsts = 0;
    for (size_t i = 0; i < tokens->len; i++) {
        const fsdp_added_token *token = &tokens->items[i];
        const char *text =
            normalized && token->normalized_text ? token->normalized_text : token->text;
        if (token->normalized != normalized || !*text)
            continue;
        list->items[list->len++] = (pattern){text, strlen(text), (uint32_t)i};
        firsts += !list->first[(unsigned char)*text];
        list->first[(unsigned char)*text] = true;
        list->only = (unsigned char)*text;
    }
    if (firsts != 1)
        list->only = -1;
    qsort(list->items, list->len, sizeof *list->items, compare_patterns);
    return FSDP_OK;
}

fsdp_status fsdp_added_tokens_finish(fsdp_added_tokens *tokens)
{
    clear_lists(tokens);
    tokens->by_id = fsdp_calloc(tokens->len, sizeof *tokens->by_id);
    if (!tokens->by_id)
        return FSDP_ERR_NOMEM;
    for (size_t i = 0; i < tokens->len; i++)
        tokens->by_id[i] = (uint32_t)i;
    qsort_r(tokens->by_id, tokens->len, sizeof *tokens->by_id, compare_token_ids, tokens->items);
    FSDP_TRY(make_list(tokens, false));
    return make_list(tokens, true);
}

/* ---- reading JSON ---- */

fsdp_status fsdp_added_token_from_json(fsdp_json_node node, fsdp_added_token *token)
{
    fsdp_added_token t = {0};
    const char *text;
    if (fsdp_json_kind_of(node) != FSDP_JSON_OBJECT)
        return fsdp_json_mismatch(node, NULL, "an object with the content of a token");
    FSDP_TRY(fsdp_json_get_str(node, "content", &text));
    FSDP_TRY(fsdp_json_opt_bool(node, "special", false, &t.special));
    FSDP_TRY(fsdp_json_opt_bool(node, "single_word", false, &t.single_word));
    FSDP_TRY(fsdp_json_opt_bool(node, "lstrip", false, &t.lstrip));
    FSDP_TRY(fsdp_json_opt_bool(node, "rstrip", false, &t.rstrip));
    FSDP_TRY(fsdp_json_opt_bool(node, "normalized", !t.special, &t.normalized));
    *token = t;
    token->text = (char *)(uintptr_t)text;
    return FSDP_OK;
}

/* ---- finding by id and text ---- */

const fsdp_added_token *fsdp_added_tokens_find_id(const fsdp_added_tokens *tokens, int32_t id)
{
    size_t low = 0, high = tokens->by_id ? tokens->len : 0;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        const fsdp_added_token *token = &tokens->items[tokens->by_id[middle]];
        if (token->id == id)
            return token;
        if (token->id < id)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}

const fsdp_added_token *fsdp_added_tokens_find_text(const fsdp_added_tokens *tokens,
                                                    const char *text, size_t length)
{
    const int32_t index = fsdp_vocabulary_find(tokens->texts, text, length);
    return index >= 0 ? &tokens->items[index] : NULL;
}

bool fsdp_added_tokens_is_special(const fsdp_added_tokens *tokens, const char *text, size_t length)
{
    return fsdp_vocabulary_find(tokens->special, text, length) >= 0;
}

int32_t fsdp_added_tokens_size(const fsdp_added_tokens *tokens)
{
    return tokens->size;
}

/* ---- finding in a text ---- */

/* Patterns [*low, *high) are equal in their first `depth` bytes. Set [*low, *high) to those of them
 * whose next byte is `byte`. */
static void narrow(const pattern_list *list, size_t depth, unsigned char byte, size_t *low,
                   size_t *high)
{
    size_t from = *low, to = *high;
    while (from < to) { /* find the first pattern whose byte at `depth` is not below `byte` */
        const size_t middle = from + (to - from) / 2;
        const pattern *p = &list->items[middle];
        if (p->length <= depth || (unsigned char)p->text[depth] < byte)
            from = middle + 1;
        else
            to = middle;
    }
    *low = from;
    to = *high;
    while (from < to) { /* find the first pattern whose byte at `depth` is above `byte` */
        const size_t middle = from + (to - from) / 2;
        if ((unsigned char)list->items[middle].text[depth] <= byte)
            from = middle + 1;
        else
            to = middle;
    }
    *high = from;
}

/* Return the longest pattern that is a prefix of text [left], or NULL if there is none. */
static const pattern *longest_at(const pattern_list *list, const char *text, size_t left)
{
    const pattern *found = NULL;
    size_t low = 0, high = list->len;
    for (size_t depth = 0; depth < left && low < high; depth++) {
        narrow(list, depth, (unsigned char)text[depth], &low, &high);
        /* The list is sorted, so the shortest of the remaining patterns comes first. */
        if (low < high && list->items[low].length == depth + 1)
            found = &list->items[low];
    }
    return found;
}

/* Return the position of the first byte at or after `at` with which a pattern begins, or `length`
 * if there is none. */
static size_t next_first(const pattern_list *list, const char *text, size_t at, size_t length)
{
    if (list->only >= 0) {
        const char *p = memchr(text + at, list->only, length - at);
        return p ? (size_t)(p - text) : length;
    }
    while (at < length && !list->first[(unsigned char)text[at]])
        at++;
    return at;
}

static const pattern *next_pattern(const pattern_list *list, const fsdp_added_search *s,
                                   size_t *begin)
{
    if (!list->len)
        return NULL;
    for (size_t at = s->at; (at = next_first(list, s->text, at, s->length)) < s->length; at++) {
        const pattern *found = longest_at(list, s->text + at, s->length - at);
        if (found) {
            *begin = at;
            return found;
        }
    }
    return NULL;
}

static bool has_class_before(const fsdp_added_tokens *tokens, const fsdp_added_search *s, size_t at,
                             uint16_t flags, size_t *length)
{
    return at > 0 &&
           fsdp_char_class(tokens->classes, fsdp_utf8_last(s->text, s->text + at, length)) & flags;
}

static bool has_class_after(const fsdp_added_tokens *tokens, const fsdp_added_search *s, size_t at,
                            uint16_t flags, size_t *length)
{
    return at < s->length &&
           fsdp_char_class(tokens->classes, fsdp_utf8_decode(s->text + at, length)) & flags;
}

/* Return false if the token must not be found at [begin, end). This is so for a special token if
 * s->keep_special is true, and for a token with single_word that is inside a word. */
static bool is_accepted(const fsdp_added_tokens *tokens, const fsdp_added_search *s,
                        const fsdp_added_token *token, size_t begin, size_t end)
{
    size_t length;
    if (s->keep_special && fsdp_added_tokens_is_special(tokens, token->text, strlen(token->text)))
        return false;
    return !token->single_word || (!has_class_before(tokens, s, begin, FSDP_CHAR_WORD, &length) &&
                                   !has_class_after(tokens, s, end, FSDP_CHAR_WORD, &length));
}

/* Set *match to the next token, including the white space that lstrip or rstrip adds to it, and
 * return true. Return false if there is no further token. */
static bool next_token(const fsdp_added_tokens *tokens, fsdp_added_search *s,
                       fsdp_added_match *match)
{
    const pattern *found;
    size_t begin = 0, length;
    while ((found = next_pattern(&tokens->lists[s->normalized], s, &begin))) {
        const fsdp_added_token *token = &tokens->items[found->token];
        size_t end = begin + found->length;
        s->at = end;
        if (!is_accepted(tokens, s, token, begin, end))
            continue;
        if (token->lstrip) {
            while (begin > 0 && has_class_before(tokens, s, begin, FSDP_CHAR_WHITE, &length))
                begin -= length;
            if (begin < s->covered)
                begin = s->covered;
        }
        while (token->rstrip && has_class_after(tokens, s, end, FSDP_CHAR_WHITE, &length))
            end += length;
        *match = (fsdp_added_match){token, begin, end};
        return true;
    }
    return false;
}

bool fsdp_added_tokens_next(const fsdp_added_tokens *tokens, fsdp_added_search *s,
                            fsdp_added_match *match)
{
    if (!s->has_held && s->at <= s->length)
        s->has_held = next_token(tokens, s, &s->held);
    if (!s->has_held) {
        const size_t begin = s->covered;
        s->at = s->length + 1;
        s->covered = s->length;
        *match = (fsdp_added_match){NULL, begin, s->length};
        return begin < s->length;
    }
    if (s->covered < s->held.begin) {
        *match = (fsdp_added_match){NULL, s->covered, s->held.begin};
        s->covered = s->held.begin;
        return true;
    }
    *match = s->held;
    s->covered = s->held.end;
    s->has_held = false;
    return true;
}
