/* Computes ROUGE from integers. Each distinct token has a number, which is the same in all texts of
 * a call. An n-gram is then also an integer, so n-grams can be sorted. The longest common
 * subsequence is computed with bit arithmetic: one 64-bit word contains 64 columns of the dynamic
 * programming table (Hyyro 2004, "Bit-Parallel LCS-length Computation Revisited"). */
#include <stdlib.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/report/porter.h"
#include "src/report/rouge.h"

/* --- tokens --- */

typedef struct token_list {
    int32_t *ids;
    size_t len, cap;
} token_list;

typedef struct token_entry {
    uint32_t hash;
    int32_t id;    /* number of the token, from 1 on; 0: free slot */
    size_t offset; /* offset of the token in token_table.text */
    size_t bytes;
} token_entry;

/* A hash table of tokens, with open addressing. At most half of its slots are used. */
typedef struct token_table {
    token_entry *entries;
    size_t slots; /* a power of two, or 0 */
    int32_t count;
    char *text; /* all tokens, one after the other */
    size_t text_len, text_cap;
    bool stemmer; /* words become their stems */
} token_table;

static void token_table_fini(token_table *table)
{
    fsdp_free(table->entries);
    fsdp_free(table->text);
}

static uint32_t hash_bytes(const char *bytes, size_t n)
{
    uint32_t hash = 2166136261u; /* FNV-1a */
    for (size_t i = 0; i < n; i++)
        hash = (hash ^ (unsigned char)bytes[i]) * 16777619u;
    return hash;
}

static fsdp_status token_table_rehash(token_table *table)
{
    size_t slots = table->slots ? table->slots * 2 : 1024;
    token_entry *fresh = fsdp_calloc(slots, sizeof *fresh);
    if (!fresh)
        return FSDP_ERR_NOMEM;
    for (size_t i = 0; i < table->slots; i++) {
        if (!table->entries[i].id)
            continue;
        size_t at = table->entries[i].hash & (slots - 1);
        while (fresh[at].id)
            at = (at + 1) & (slots - 1);
        fresh[at] = table->entries[i];
    }
    fsdp_free(table->entries);
    table->entries = fresh;
    table->slots = slots;
    return FSDP_OK;
}

static fsdp_status token_table_intern(token_table *table, const char *token, size_t bytes,
                                      int32_t *id)
{
    if ((size_t)table->count * 2 >= table->slots)
        FSDP_TRY(token_table_rehash(table));
    uint32_t hash = hash_bytes(token, bytes);
    size_t at = hash & (table->slots - 1);
    for (; table->entries[at].id; at = (at + 1) & (table->slots - 1)) {
        const token_entry *entry = &table->entries[at];
        if (entry->hash == hash && entry->bytes == bytes &&
            memcmp(table->text + entry->offset, token, bytes) == 0) {
            *id = entry->id;
            return FSDP_OK;
        }
    }
    if (!FSDP_GROW(table->text, table->text_cap, table->text_len + bytes))
        return FSDP_ERR_NOMEM;
    memcpy(table->text + table->text_len, token, bytes);
    table->entries[at] = (token_entry){hash, ++table->count, table->text_len, bytes};
    table->text_len += bytes;
    *id = table->count;
    return FSDP_OK;
}

/* Move *s past a character. Return the character in lower case if it is a letter or digit, else
 * return 0. *ends is set to true if the token ends after this character.
 *
 * Python's rouge_score converts text to lower case before it looks for a-z. The conversion turns
 * two characters outside ASCII into ASCII letters. KELVIN SIGN (E2 84 AA) becomes k. I WITH DOT
 * ABOVE (C4 B0) becomes i and a combining dot, which ends the token. */
static char token_char(const unsigned char **s, bool *ends)
{
    const unsigned char *c = *s;
    *ends = false;
    *s += 1;
    if ((c[0] >= 'a' && c[0] <= 'z') || (c[0] >= '0' && c[0] <= '9'))
        return (char)c[0];
    if (c[0] >= 'A' && c[0] <= 'Z')
        return (char)(c[0] + ('a' - 'A'));
    if (c[0] == 0xC4 && c[1] == 0xB0) {
        *s += 1;
        *ends = true;
        return 'i';
    }
    if (c[0] == 0xE2 && c[1] == 0x84 && c[2] == 0xAA) {
        *s += 2;
        return 'k';
    }
    return 0;
}

static fsdp_status token_list_add(token_list *list, token_table *table, const char *token,
                                  size_t bytes)
{
    if (!FSDP_GROW(list->ids, list->cap, list->len + 1))
        return FSDP_ERR_NOMEM;
    FSDP_TRY(token_table_intern(table, token, bytes, &list->ids[list->len]));
    list->len++;
    return FSDP_OK;
}

/* Replace the content of `list` by the tokens of `text` [bytes], which ends with a NUL or a line
 * end. *word is scratch memory of *word_cap bytes, which grows as needed. The caller frees it. */
static fsdp_status tokenize(const char *text, size_t bytes, token_table *table, token_list *list,
                            char **word, size_t *word_cap)
{
    const unsigned char *s = (const unsigned char *)text, *end = s + bytes;
    size_t len = 0;
    list->len = 0;
    while (s < end) {
        bool ends;
        char c = token_char(&s, &ends);
        if (c) {
            if (!FSDP_GROW(*word, *word_cap, len + 1))
                return FSDP_ERR_NOMEM;
            (*word)[len++] = c;
        }
        if (len && (!c || ends || s >= end)) {
            if (table->stemmer && len > 3)
                fsdp_porter_stem(*word, &len);
            FSDP_TRY(token_list_add(list, table, *word, len));
            len = 0;
        }
    }
    return FSDP_OK;
}

static void token_lists_destroy(token_list *lists, size_t n)
{
    for (size_t i = 0; lists && i < n; i++)
        fsdp_free(lists[i].ids);
    fsdp_free(lists);
}

static fsdp_status tokenize_all(const char *const *texts, size_t n, token_table *table,
                                token_list **out)
{
    char *word = NULL;
    size_t word_cap = 0;
    fsdp_status status = FSDP_OK;
    token_list *lists = fsdp_calloc(n, sizeof *lists);
    if (!lists)
        return FSDP_ERR_NOMEM;
    for (size_t i = 0; i < n && status == FSDP_OK; i++)
        status = tokenize(texts[i], strlen(texts[i]), table, &lists[i], &word, &word_cap);
    fsdp_free(word);
    if (status != FSDP_OK) {
        token_lists_destroy(lists, n);
        return status;
    }
    *out = lists;
    return FSDP_OK;
}

/* --- longest common subsequence --- */

/* A reference that is prepared for comparison with many predictions. Each distinct token of the
 * reference has a row of bits. Bit j of the row is set if the token is at position j of the
 * reference. All tokens that are not in the reference share row 0, which has no bit set. */
typedef struct lcs {
    uint64_t *rows;  /* [number of distinct tokens in the reference + 1, words] */
    uint64_t *state; /* [words] */
    /* [number of tokens in the token_table + 1]: row_of[t] is the index of token t in `rows` */
    int32_t *row_of;
    size_t rows_cap, state_cap, words;
    const token_list *reference;
} lcs;

static void lcs_fini(lcs *l)
{
    fsdp_free(l->rows);
    fsdp_free(l->state);
    fsdp_free(l->row_of);
}

static fsdp_status lcs_init(lcs *l, const token_table *table)
{
    *l = (lcs){0};
    l->row_of = fsdp_calloc((size_t)table->count + 1, sizeof *l->row_of);
    return l->row_of ? FSDP_OK : FSDP_ERR_NOMEM;
}

static fsdp_status lcs_begin(lcs *l, const token_list *reference)
{
    int32_t distinct = 0;
    l->words = reference->len / 64 + 1;
    if (!FSDP_GROW(l->rows, l->rows_cap, (reference->len + 1) * l->words) ||
        !FSDP_GROW(l->state, l->state_cap, l->words))
        return FSDP_ERR_NOMEM;
    memset(l->rows, 0, (reference->len + 1) * l->words * sizeof *l->rows);
    l->reference = reference;
    for (size_t j = 0; j < reference->len; j++) {
        int32_t *row = &l->row_of[reference->ids[j]];
        if (!*row)
            *row = ++distinct;
        l->rows[(size_t)*row * l->words + j / 64] |= (uint64_t)1 << j % 64;
    }
    return FSDP_OK;
}

static void lcs_end(lcs *l)
{
    for (size_t j = 0; j < l->reference->len; j++)
        l->row_of[l->reference->ids[j]] = 0;
}

/* Compute one more row of the dynamic programming table for each token. l->state contains the row
 * before the first token, and is replaced by the row of the last token. */
static void lcs_advance(lcs *l, const token_list *tokens)
{
    for (size_t i = 0; i < tokens->len; i++) {
        int32_t row = l->row_of[tokens->ids[i]];
        if (!row)
            continue;
        const uint64_t *match = l->rows + (size_t)row * l->words;
        bool carry = false;
        for (size_t w = 0; w < l->words; w++) {
            uint64_t before = l->state[w], sum;
            bool over = __builtin_add_overflow(before, before & match[w], &sum);
            over |= __builtin_add_overflow(sum, (uint64_t)carry, &sum);
            carry = over;
            l->state[w] = sum | (before & ~match[w]);
        }
    }
}

/* Return the length of the longest common subsequence of l->reference and `prediction`. The dynamic
 * programming table has a row for each token of the prediction and a column for each token of the
 * reference. Its last entry, at the end of the last row, is the length. Along a row, each entry is
 * either equal to the entry to its left or greater by one. So l->state stores a row as one bit for
 * each column: bit j is 0 if the entry in column j is greater than the entry to its left. The last
 * entry of a row is therefore the number of zeros in the row. */
static size_t lcs_length(lcs *l, const token_list *prediction)
{
    memset(l->state, 0xff, l->words * sizeof *l->state);
    lcs_advance(l, prediction);
    size_t ones = 0, columns = l->reference->len;
    for (size_t w = 0; w < l->words; w++) {
        uint64_t used = columns >= 64 * (w + 1) ? ~(uint64_t)0 : ((uint64_t)1 << columns % 64) - 1;
        ones += (size_t)__builtin_popcountll(l->state[w] & used);
    }
    return columns - ones;
}

/* --- scores --- */

static fsdp_rouge_score score_of(size_t matches, size_t reference_len, size_t prediction_len)
{
    fsdp_rouge_score score = {
        .precision = (double)matches / (double)(prediction_len ? prediction_len : 1),
        .recall = (double)matches / (double)(reference_len ? reference_len : 1)};
    double sum = score.precision + score.recall;
    score.fmeasure = sum > 0 ? 2 * score.precision * score.recall / sum : 0;
    return score;
}

static int compare_keys(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* Write the n-grams of a list to `keys`, as numbers in ascending order. n is 1 or 2. *count is set
 * to the number of n-grams, which may be 0. */
static void sorted_ngrams(const token_list *list, size_t n, int64_t *keys, size_t *count)
{
    *count = list->len >= n ? list->len - n + 1 : 0;
    for (size_t i = 0; i < *count; i++)
        keys[i] = n == 1 ? list->ids[i] : (int64_t)list->ids[i] << 32 | list->ids[i + 1];
    qsort(keys, *count, sizeof *keys, compare_keys);
}

/* Return the size of the intersection of two sorted multisets. */
static size_t count_common(const int64_t *a, size_t a_len, const int64_t *b, size_t b_len)
{
    size_t i = 0, j = 0, common = 0;
    while (i < a_len && j < b_len) {
        common += a[i] == b[j];
        bool step_a = a[i] <= b[j], step_b = b[j] <= a[i];
        i += step_a;
        j += step_b;
    }
    return common;
}

static fsdp_status score_lists(lcs *l, const token_list *reference, const token_list *prediction,
                               fsdp_rouge *rouge)
{
    fsdp_rouge_score ngram[2];
    int64_t *keys = fsdp_calloc(reference->len + prediction->len, sizeof *keys);
    if (!keys)
        return FSDP_ERR_NOMEM;
    int64_t *prediction_keys = keys + reference->len;
    for (size_t n = 1; n <= 2; n++) {
        size_t in_reference, in_prediction;
        sorted_ngrams(reference, n, keys, &in_reference);
        sorted_ngrams(prediction, n, prediction_keys, &in_prediction);
        size_t common = count_common(keys, in_reference, prediction_keys, in_prediction);
        ngram[n - 1] = score_of(common, in_reference, in_prediction);
    }
    fsdp_free(keys);
    FSDP_TRY(lcs_begin(l, reference));
    size_t common = lcs_length(l, prediction);
    lcs_end(l);
    *rouge = (fsdp_rouge){.rouge1 = ngram[0],
                          .rouge2 = ngram[1],
                          .rougeL = score_of(common, reference->len, prediction->len)};
    return FSDP_OK;
}

static void score_add(fsdp_rouge_score *sum, const fsdp_rouge_score *score)
{
    sum->precision += score->precision;
    sum->recall += score->recall;
    sum->fmeasure += score->fmeasure;
}

static void score_divide(fsdp_rouge_score *sum, size_t n)
{
    sum->precision /= (double)n;
    sum->recall /= (double)n;
    sum->fmeasure /= (double)n;
}

/* --- ROUGE-Lsum --- */

/* The tokens of the lines of a text. */
typedef struct line_lists {
    token_list *items; /* [n] */
    size_t n, cap;
    size_t tokens; /* number of tokens in all lines */
} line_lists;

static void line_lists_fini(line_lists *lines)
{
    token_lists_destroy(lines->items, lines->n);
}

/* Split a text into lines, and each line into tokens. A line without tokens has no effect. */
static fsdp_status split_lines(const char *text, token_table *table, line_lists *lines, char **word,
                               size_t *word_cap)
{
    for (size_t length; *text; text += length + (text[length] == '\n')) {
        length = strcspn(text, "\n");
        if (!FSDP_GROW(lines->items, lines->cap, lines->n + 1))
            return FSDP_ERR_NOMEM;
        lines->items[lines->n] = (token_list){0};
        lines->n++;
        FSDP_TRY(tokenize(text, length, table, &lines->items[lines->n - 1], word, word_cap));
        lines->tokens += lines->items[lines->n - 1].len;
    }
    return FSDP_OK;
}

/* Return the number of zeros among the first `columns` bits of a row. This is the entry of the
 * dynamic programming table at the end of these columns. */
static size_t count_zeros(const uint64_t *row, size_t columns)
{
    size_t ones = 0;
    for (size_t w = 0; w * 64 < columns; w++) {
        const size_t left = columns - w * 64;
        const uint64_t used = left >= 64 ? ~(uint64_t)0 : ((uint64_t)1 << left) - 1;
        ones += (size_t)__builtin_popcountll(row[w] & used);
    }
    return columns - ones;
}

/* Mark the tokens of `reference` that are in a longest common subsequence with `prediction`. If
 * there are several, choose the one that rouge_score finds: it searches backward from the ends of
 * both lists, and prefers to leave out a token of the reference. rows [reference->len + 1,
 * l->words] is scratch memory. */
static void mark_common(lcs *l, const token_list *reference, const token_list *prediction,
                        uint64_t *rows, bool *marks)
{
    size_t i = reference->len, j = prediction->len;
    memset(rows, 0xff, l->words * sizeof *rows);
    for (size_t r = 0; r < reference->len; r++) {
        const token_list one = {.ids = &reference->ids[r], .len = 1};
        memcpy(l->state, rows + r * l->words, l->words * sizeof *l->state);
        lcs_advance(l, &one);
        memcpy(rows + (r + 1) * l->words, l->state, l->words * sizeof *l->state);
    }
    while (i > 0 && j > 0) {
        if (reference->ids[i - 1] == prediction->ids[j - 1]) {
            marks[i - 1] = true;
            i--;
            j--;
        } else if (count_zeros(rows + i * l->words, j - 1) >
                   count_zeros(rows + (i - 1) * l->words, j)) {
            j--;
        } else {
            i--;
        }
    }
}

/* Mark the tokens of a line of the reference that are in a longest common subsequence with any line
 * of the prediction. */
static fsdp_status mark_line(lcs *l, const token_list *reference, const line_lists *prediction,
                             bool *marks)
{
    uint64_t *rows = NULL;
    size_t cap = 0;
    fsdp_status status = FSDP_OK;
    for (size_t i = 0; i < prediction->n && status == FSDP_OK; i++) {
        if ((status = lcs_begin(l, &prediction->items[i])) != FSDP_OK)
            break;
        if (FSDP_GROW(rows, cap, (reference->len + 1) * l->words))
            mark_common(l, reference, &prediction->items[i], rows, marks);
        else
            status = FSDP_ERR_NOMEM;
        lcs_end(l);
    }
    fsdp_free(rows);
    return status;
}

static void count_tokens(const line_lists *lines, size_t *counts)
{
    for (size_t i = 0; i < lines->n; i++)
        for (size_t k = 0; k < lines->items[i].len; k++)
            counts[lines->items[i].ids[k]]++;
}

/* Add to *hits the number of marked tokens of `reference`. A distinct token counts at most as often
 * as it occurs in `reference`, and at most as often as it occurs in `prediction`. `counts` [2 *
 * distinct] is scratch memory. */
static fsdp_status count_hits(lcs *l, const line_lists *reference, const line_lists *prediction,
                              size_t *counts, size_t distinct, size_t *hits)
{
    size_t *of_reference = counts, *of_prediction = counts + distinct;
    count_tokens(reference, of_reference);
    count_tokens(prediction, of_prediction);
    for (size_t i = 0; i < reference->n; i++) {
        const token_list *line = &reference->items[i];
        bool *marks = fsdp_calloc(line->len + 1, sizeof *marks);
        if (!marks)
            return FSDP_ERR_NOMEM;
        const fsdp_status status = mark_line(l, line, prediction, marks);
        for (size_t k = 0; status == FSDP_OK && k < line->len; k++) {
            const int32_t id = line->ids[k];
            if (!marks[k] || !of_reference[id] || !of_prediction[id])
                continue;
            of_reference[id]--;
            of_prediction[id]--;
            ++*hits;
        }
        fsdp_free(marks);
        FSDP_TRY(status);
    }
    return FSDP_OK;
}

static fsdp_status score_lines(const token_table *table, const line_lists *reference,
                               const line_lists *prediction, fsdp_rouge_score *score)
{
    lcs l;
    size_t hits = 0;
    const size_t distinct = (size_t)table->count + 1;
    FSDP_TRY(lcs_init(&l, table));
    size_t *counts = fsdp_calloc(distinct, 2 * sizeof *counts);
    fsdp_status status = counts ? FSDP_OK : FSDP_ERR_NOMEM;
    if (status == FSDP_OK)
        status = count_hits(&l, reference, prediction, counts, distinct, &hits);
    if (status == FSDP_OK)
        *score = score_of(hits, reference->tokens, prediction->tokens);
    fsdp_free(counts);
    lcs_fini(&l);
    return status;
}

/* Compute ROUGE-Lsum of a pair of texts. */
static fsdp_status score_summary(bool stemmer, const char *reference, const char *prediction,
                                 fsdp_rouge_score *score)
{
    token_table table = {.stemmer = stemmer};
    line_lists of_reference = {0}, of_prediction = {0};
    char *word = NULL;
    size_t word_cap = 0;
    fsdp_status status = split_lines(reference, &table, &of_reference, &word, &word_cap);
    if (status == FSDP_OK)
        status = split_lines(prediction, &table, &of_prediction, &word, &word_cap);
    if (status == FSDP_OK)
        status = score_lines(&table, &of_reference, &of_prediction, score);
    fsdp_free(word);
    line_lists_fini(&of_reference);
    line_lists_fini(&of_prediction);
    token_table_fini(&table);
    return status;
}

/* Compute the mean scores over n pairs. Pair i consists of references[i] and predictions[i], or of
 * references[i] and predictions[0] if `constant` is true. */
static fsdp_status mean_of_lists(lcs *l, const token_list *references,
                                 const token_list *predictions, bool constant, size_t n,
                                 fsdp_rouge *rouge)
{
    fsdp_rouge sum = {0};
    for (size_t i = 0; i < n; i++) {
        fsdp_rouge pair;
        FSDP_TRY(score_lists(l, &references[i], &predictions[constant ? 0 : i], &pair));
        score_add(&sum.rouge1, &pair.rouge1);
        score_add(&sum.rouge2, &pair.rouge2);
        score_add(&sum.rougeL, &pair.rougeL);
    }
    score_divide(&sum.rouge1, n);
    score_divide(&sum.rouge2, n);
    score_divide(&sum.rougeL, n);
    *rouge = sum;
    return FSDP_OK;
}

/* Set *best to the index of the candidate with the largest sum of ROUGE-L F-measures over the
 * references. If several candidates have the same sum, take the first of them. */
static fsdp_status find_best(lcs *l, const token_list *references, size_t n_references,
                             const token_list *candidates, size_t n_candidates, size_t *best)
{
    double *sums = fsdp_calloc(n_candidates, sizeof *sums);
    if (!sums)
        return FSDP_ERR_NOMEM;
    fsdp_status status = FSDP_OK;
    for (size_t r = 0; r < n_references && status == FSDP_OK; r++) {
        if ((status = lcs_begin(l, &references[r])) != FSDP_OK)
            break;
        for (size_t c = 0; c < n_candidates; c++) {
            size_t common = lcs_length(l, &candidates[c]);
            sums[c] += score_of(common, references[r].len, candidates[c].len).fmeasure;
        }
        lcs_end(l);
    }
    size_t found = 0;
    for (size_t c = 1; c < n_candidates; c++)
        if (sums[c] > sums[found])
            found = c;
    fsdp_free(sums);
    if (status == FSDP_OK)
        *best = found;
    return status;
}

/* Set *best to the index of the candidate that find_best() chooses. If `rouge` is not NULL, set
 * *rouge to the mean scores of this candidate. */
static fsdp_status best_of_lists(lcs *l, const token_list *references, size_t n_references,
                                 const token_list *candidates, size_t n_candidates, size_t *best,
                                 fsdp_rouge *rouge)
{
    size_t found;
    fsdp_rouge means;
    FSDP_TRY(find_best(l, references, n_references, candidates, n_candidates, &found));
    FSDP_TRY(mean_of_lists(l, references, &candidates[found], true, n_references, &means));
    *best = found;
    if (rouge)
        *rouge = means;
    return FSDP_OK;
}

/* --- entry points --- */

/* Set *mean to the mean ROUGE-Lsum over n pairs. */
static fsdp_status mean_of_summaries(bool stemmer, const char *const *references,
                                     const char *const *predictions, size_t n,
                                     fsdp_rouge_score *mean)
{
    fsdp_rouge_score sum = {0};
    for (size_t i = 0; i < n; i++) {
        fsdp_rouge_score pair = {0};
        FSDP_TRY(score_summary(stemmer, references[i], predictions[i], &pair));
        score_add(&sum, &pair);
    }
    score_divide(&sum, n);
    *mean = sum;
    return FSDP_OK;
}

fsdp_status fsdp_rouge_mean(const char *const *references, const char *const *predictions, size_t n,
                            fsdp_rouge *rouge)
{
    return fsdp_rouge_mean_with(NULL, references, predictions, n, rouge);
}

fsdp_status fsdp_rouge_mean_with(const fsdp_rouge_options *options, const char *const *references,
                                 const char *const *predictions, size_t n, fsdp_rouge *rouge)
{
    static const fsdp_rouge_options none = {0};
    const fsdp_rouge_options *o = options ? options : &none;
    fsdp_rouge means = {0};
    if (!n)
        return fsdp_error(FSDP_ERR_INVALID, "ROUGE of no texts");
    token_table table = {.stemmer = o->stemmer};
    lcs l = {0};
    token_list *reference_lists = NULL, *prediction_lists = NULL;
    fsdp_status status = tokenize_all(references, n, &table, &reference_lists);
    if (status == FSDP_OK)
        status = tokenize_all(predictions, n, &table, &prediction_lists);
    if (status == FSDP_OK)
        status = lcs_init(&l, &table);
    if (status == FSDP_OK)
        status = mean_of_lists(&l, reference_lists, prediction_lists, false, n, &means);
    if (status == FSDP_OK && o->rougeLsum)
        status = mean_of_summaries(o->stemmer, references, predictions, n, &means.rougeLsum);
    if (status == FSDP_OK)
        *rouge = means;
    lcs_fini(&l);
    token_lists_destroy(prediction_lists, n);
    token_lists_destroy(reference_lists, n);
    token_table_fini(&table);
    return status;
}

fsdp_status fsdp_rouge_pair(const char *reference, const char *prediction, fsdp_rouge *rouge)
{
    return fsdp_rouge_mean(&reference, &prediction, 1, rouge);
}

fsdp_status fsdp_rouge_best_constant(const char *const *references, size_t n_references,
                                     const char *const *candidates, size_t n_candidates,
                                     size_t *best, fsdp_rouge *rouge)
{
    if (!n_references || !n_candidates)
        return fsdp_error(FSDP_ERR_INVALID,
                          "best constant sentence: %zu references, %zu candidates", n_references,
                          n_candidates);
    token_table table = {0};
    lcs l = {0};
    token_list *reference_lists = NULL, *candidate_lists = NULL;
    fsdp_status status = tokenize_all(references, n_references, &table, &reference_lists);
    if (status == FSDP_OK)
        status = tokenize_all(candidates, n_candidates, &table, &candidate_lists);
    if (status == FSDP_OK)
        status = lcs_init(&l, &table);
    if (status == FSDP_OK)
        status = best_of_lists(&l, reference_lists, n_references, candidate_lists, n_candidates,
                               best, rouge);
    lcs_fini(&l);
    token_lists_destroy(candidate_lists, n_candidates);
    token_lists_destroy(reference_lists, n_references);
    token_table_fini(&table);
    return status;
}
