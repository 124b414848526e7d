/* See questions.h. */
#include "src/accelerate/questions.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "src/accelerate/question_table.h"
#include "src/base/alloc.h"
#include "src/base/nearest.h"
#include "src/base/str.h"

/* ---- answers ---- */

static const fsdp_question *question(size_t i)
{
    return &fsdp_questions[i];
}

static void answers_fini(fsdp_answers *a)
{
    for (size_t i = 0; i < FSDP_QUESTIONS; i++) {
        fsdp_free(a->values[i]);
        fsdp_free(a->given[i]);
        fsdp_free(a->typed[i]);
    }
}

/* ---- the value of an answer ---- */

static size_t count_words(const char *const *words)
{
    size_t n = 0;
    while (words[n])
        n++;
    return n;
}

/* Return "true" if `text` means yes, "false" if it means no, and NULL if it means neither. */
static const char *yes_or_no(const char *text)
{
    static const char *const yes[] = {"yes", "y", "true", "t", "1", "on"};
    static const char *const no[] = {"no", "n", "false", "f", "0", "off"};
    for (size_t i = 0; i < 6; i++) {
        if (strcasecmp(text, yes[i]) == 0)
            return "true";
        if (strcasecmp(text, no[i]) == 0)
            return "false";
    }
    return NULL;
}

static bool is_integer(const char *text, long least)
{
    char *end;
    const long value = strtol(text, &end, 10);
    return end != text && !*end && value >= least && value < LONG_MAX;
}

static fsdp_status wrong_choice(const fsdp_question *q, const char *key, const char *text)
{
    fsdp_str known = {0};
    for (size_t i = 0; q->values[i]; i++)
        fsdp_str_printf(&known, "%s%s (%zu)", i ? ", " : "", q->values[i], i + 1);
    char *list = fsdp_str_take(&known);
    if (!list)
        return FSDP_ERR_NOMEM;
    fsdp_status status = fsdp_error(FSDP_ERR_INVALID, "%.100s=%.100s: none of %s", key, text, list);
    fsdp_free(list);
    return status;
}

/* Return the index of the choice that `text` names: by its value, by what the menu shows, or by its
 * number in the menu. Return count_words(q->values) if it names none. */
static size_t find_choice(const fsdp_question *q, const char *text)
{
    const size_t n = count_words(q->values), i = fsdp_menu_find(text, q->values, n);
    return i == n && q->shown ? fsdp_menu_find(text, q->shown, n) : i;
}

/* Check the answer `text`, and set *value to the text that the file will have. The caller owns
 * *value. Error messages contain `key`, the key as the user typed it. */
static fsdp_status read_answer(const fsdp_question *q, const char *key, const char *text,
                               char **value)
{
    const char *found = text;
    if (q->kind == FSDP_ASK_YES_NO && !(found = yes_or_no(text)))
        return fsdp_error(FSDP_ERR_INVALID, "%.100s=%.100s: yes or no%s%s", key, text,
                          q->hint ? "; " : "", q->hint ? q->hint : "");
    if (q->kind == FSDP_ASK_CHOICE) {
        found = q->values[find_choice(q, text)];
        if (!found)
            return wrong_choice(q, key, text);
    }
    if (q->kind == FSDP_ASK_INT && !is_integer(text, q->least))
        return fsdp_error(FSDP_ERR_INVALID, "%.100s=%.100s: not a whole number from %ld on", key,
                          text, q->least);
    if (q->refuse) {
        const char *reason = q->refuse(found);
        if (reason)
            return fsdp_error(FSDP_ERR_UNSUPPORTED, "%.100s=%s: %s", key, found, reason);
    }
    *value = fsdp_strdup(found);
    return *value ? FSDP_OK : FSDP_ERR_NOMEM;
}

/* ---- asking ---- */

static fsdp_status ask_once(const fsdp_question *q, const fsdp_menu_io *io, char **text)
{
    if (q->kind != FSDP_ASK_CHOICE) {
        FSDP_TRY(fsdp_menu_line(io, q->prompt, text));
        if (**text || !q->value)
            return FSDP_OK;
        fsdp_free(*text);
        *text = fsdp_strdup(q->value);
        return *text ? FSDP_OK : FSDP_ERR_NOMEM;
    }
    const size_t n = count_words(q->values);
    size_t chosen = fsdp_menu_find(q->value, q->values, n);
    FSDP_TRY(fsdp_menu_choose(io, q->prompt, q->shown ? q->shown : q->values, n, chosen, &chosen));
    *text = fsdp_strdup(q->values[chosen]);
    return *text ? FSDP_OK : FSDP_ERR_NOMEM;
}

/* Ask the question until its answer is valid. */
static fsdp_status ask(const fsdp_question *q, const fsdp_menu_io *io, char **value)
{
    for (;;) {
        char *text;
        FSDP_TRY(ask_once(q, io, &text));
        if (!*text && q->may_be_empty) {
            *value = text;
            return FSDP_OK;
        }
        fsdp_status status = *text
                                 ? read_answer(q, q->key, text, value)
                                 : fsdp_error(FSDP_ERR_INVALID, "%s: an answer is needed", q->key);
        fsdp_free(text);
        if (status != FSDP_ERR_INVALID && status != FSDP_ERR_UNSUPPORTED)
            return status;
        fprintf(io->out, "%s\n", fsdp_last_error());
    }
}

/* Read the answer that the command line gives. With FSDP2, the user is not asked for a strategy,
 * but whether to reshard (yes or no). The answer must not be taken from fsdp_sharding_strategy:
 * there, 1 is the number of a strategy, but it would be read as yes. */
static fsdp_status answer_given(fsdp_answers *a, size_t i)
{
    const fsdp_question *q = question(i);
    if (q->kind == FSDP_ASK_YES_NO && strstr(a->typed[i], "sharding_strategy"))
        return fsdp_error(FSDP_ERR_INVALID, "%.100s=%.100s: %s", a->typed[i], a->given[i],
                          q->hint ? q->hint : "yes or no");
    return read_answer(q, a->typed[i], a->given[i], &a->values[i]);
}

static fsdp_status answer(fsdp_answers *a, size_t i, const fsdp_menu_io *io)
{
    const fsdp_question *q = question(i);
    if (a->given[i])
        return answer_given(a, i);
    if (io && (!q->asked || q->asked(a)))
        return ask(q, io, &a->values[i]);
    const char *value =
        q->default_without_questions && !io ? q->default_without_questions : q->value;
    if (!value && !q->may_be_empty)
        return fsdp_error(FSDP_ERR_INVALID, "%s is missing: %s", q->key, q->prompt);
    a->values[i] = fsdp_strdup(value ? value : "");
    return a->values[i] ? FSDP_OK : FSDP_ERR_NOMEM;
}

static fsdp_status check_used(const fsdp_answers *a, size_t i)
{
    /* Several questions may have the same key. It is enough if one of them applies. */
    for (size_t k = 0; k < FSDP_QUESTIONS; k++)
        if (a->values[k] && strcmp(question(k)->key, question(i)->key) == 0)
            return FSDP_OK;
    return fsdp_error(FSDP_ERR_INVALID, "%.100s=%.100s has no meaning here: it needs %s",
                      a->typed[i], a->given[i],
                      question(i)->needs ? question(i)->needs : "other answers");
}

static fsdp_status answer_all(fsdp_answers *a, const fsdp_menu_io *io)
{
    for (size_t i = 0; i < FSDP_QUESTIONS; i++)
        if (question(i)->applies(a))
            FSDP_TRY(answer(a, i, io));
    for (size_t i = 0; i < FSDP_QUESTIONS; i++)
        if (a->given[i])
            FSDP_TRY(check_used(a, i));
    return fsdp_answers_check(a);
}

/* ---- answers from the command line ---- */

static const char *renamed(const char *key)
{
    static const char *const names[][2] = {
        {"fsdp_sharding_strategy", "fsdp_reshard_after_forward"},
        {"sharding_strategy", "fsdp_reshard_after_forward"},
        {"fsdp_backward_prefetch_policy", "fsdp_backward_prefetch"},
        {"backward_prefetch_policy", "fsdp_backward_prefetch"},
        {"fsdp_transformer_cls_to_wrap", "fsdp_transformer_layer_cls_to_wrap"},
        {"transformer_cls_to_wrap", "fsdp_transformer_layer_cls_to_wrap"},
        {"num_processes_per_machine", "num_processes"}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(key, names[i][0]) == 0)
            return names[i][1];
    return key;
}

static bool is_key(const fsdp_question *q, const char *key)
{
    static const char *const prefixes[] = {"fsdp_", "parallelism_config_"};
    if (strcmp(q->key, key) == 0)
        return true;
    for (size_t i = 0; i < 2; i++) {
        const size_t n = strlen(prefixes[i]);
        if (strncmp(q->key, prefixes[i], n) == 0 && strcmp(q->key + n, key) == 0)
            return true;
    }
    return false;
}

static fsdp_status unknown_key(const char *key)
{
    const char *names[FSDP_QUESTIONS];
    for (size_t i = 0; i < FSDP_QUESTIONS; i++)
        names[i] = question(i)->key;
    const int nearest = fsdp_nearest_name(key, names, FSDP_QUESTIONS);
    return fsdp_error(FSDP_ERR_INVALID, "%.100s: no key of a configuration%s%s%s", key,
                      nearest < 0 ? "" : "; did you mean ", nearest < 0 ? "" : names[nearest],
                      nearest < 0 ? "" : "?");
}

static bool is_given(const fsdp_answers *a, const char *key)
{
    for (size_t i = 0; i < FSDP_QUESTIONS; i++)
        if (is_key(question(i), key) && a->given[i])
            return true;
    return false;
}

/* Return true if the answer `text` to the question `distributed_type` chooses MULTI_GPU. */
static bool is_multi_gpu(const char *text)
{
    for (size_t i = 0; i < FSDP_QUESTIONS; i++) {
        if (strcmp(question(i)->key, "distributed_type") != 0)
            continue;
        const char *value = question(i)->values[find_choice(question(i), text)];
        return value && strcmp(value, "MULTI_GPU") == 0;
    }
    return false;
}

/* Store the answer `value` to all questions whose key is `key`. `distributed_type=FSDP` gives two
 * answers: MULTI_GPU, and use_fsdp=yes. `distributed_type=MULTI_GPU` means training without FSDP,
 * but the default of use_fsdp is yes if no questions are asked. So this answer also gives
 * use_fsdp=no, unless the user gave use_fsdp. */
static fsdp_status give(fsdp_answers *a, const char *key, const char *value)
{
    bool any = false;
    if (strcmp(key, "distributed_type") == 0 && strcasecmp(value, "FSDP") == 0) {
        FSDP_TRY(give(a, "use_fsdp", "yes"));
        value = "MULTI_GPU";
    } else if (strcmp(key, "distributed_type") == 0 && is_multi_gpu(value) &&
               !is_given(a, "use_fsdp")) {
        FSDP_TRY(give(a, "use_fsdp", "no"));
    }
    for (size_t i = 0; i < FSDP_QUESTIONS; i++) {
        if (!is_key(question(i), renamed(key)))
            continue;
        fsdp_free(a->given[i]);
        fsdp_free(a->typed[i]);
        a->given[i] = fsdp_strdup(value);
        a->typed[i] = fsdp_strdup(key);
        if (!a->given[i] || !a->typed[i])
            return FSDP_ERR_NOMEM;
        any = true;
    }
    return any ? FSDP_OK : unknown_key(key);
}

/* Split "key=value" into *key, which the caller owns, and *value, which points into `pair`. In
 * *key, underscores replace the dashes. */
static fsdp_status split_pair(const char *pair, char **key, const char **value)
{
    const char *equals = strchr(pair, '=');
    if (!equals || equals == pair)
        return fsdp_error(FSDP_ERR_INVALID, "%.100s: not of the form key=value", pair);
    *key = fsdp_strndup(pair, (size_t)(equals - pair));
    *value = equals + 1;
    if (!*key)
        return FSDP_ERR_NOMEM;
    for (char *p = *key; *p; p++)
        if (*p == '-')
            *p = '_';
    return FSDP_OK;
}

static fsdp_status give_pair(fsdp_answers *a, const char *pair)
{
    char *key;
    const char *value;
    FSDP_TRY(split_pair(pair, &key, &value));
    fsdp_status status = give(a, key, value);
    fsdp_free(key);
    return status;
}

/* Return true if both keys belong to one question. */
static bool is_same_question(const char *a, const char *b)
{
    for (size_t i = 0; i < FSDP_QUESTIONS; i++)
        if (is_key(question(i), renamed(a)) && is_key(question(i), renamed(b)))
            return true;
    return false;
}

/* Return true if the two answers contradict each other in this way: the first is
 * distributed_type=FSDP, which means use_fsdp=yes, and the second is use_fsdp=no. */
static bool denies_fsdp(const char *key_1, const char *value_1, const char *key_2,
                        const char *value_2)
{
    const char *use = yes_or_no(value_2);
    return strcmp(key_1, "distributed_type") == 0 && strcasecmp(value_1, "FSDP") == 0 &&
           strcmp(key_2, "use_fsdp") == 0 && use && strcmp(use, "false") == 0;
}

/* Return FSDP_ERR_INVALID if the two pairs contradict each other, for example if they are different
 * answers to the same question. */
static fsdp_status check_pairs(const char *first, const char *second)
{
    char *key_1 = NULL, *key_2 = NULL;
    const char *value_1, *value_2;
    fsdp_status status = split_pair(first, &key_1, &value_1);
    if (status == FSDP_OK)
        status = split_pair(second, &key_2, &value_2);
    if (status == FSDP_OK && ((strcmp(value_1, value_2) != 0 && is_same_question(key_1, key_2)) ||
                              denies_fsdp(key_1, value_1, key_2, value_2) ||
                              denies_fsdp(key_2, value_2, key_1, value_1)))
        status = fsdp_error(FSDP_ERR_INVALID, "%.100s contradicts %.100s; leave one of them out",
                            first, second);
    fsdp_free(key_1);
    fsdp_free(key_2);
    return status;
}

bool fsdp_accelerate_is_given(const char *const *given, size_t n, const char *key)
{
    bool found = false;
    for (size_t i = 0; i < n && !found; i++) {
        char *typed;
        const char *value;
        if (split_pair(given[i], &typed, &value) != FSDP_OK)
            continue;
        found = is_same_question(typed, key) ||
                (strcmp(key, "use_fsdp") == 0 && strcmp(typed, "distributed_type") == 0);
        fsdp_free(typed);
    }
    return found;
}

/* ---- asking all questions ---- */

fsdp_status fsdp_accelerate_ask(const char *const *given, size_t n, const fsdp_menu_io *io,
                                fsdp_yaml *config)
{
    fsdp_answers answers = {0};
    fsdp_yaml made = {.kind = FSDP_YAML_MAP};
    fsdp_status status = FSDP_OK;
    for (size_t i = 0; i < n && status == FSDP_OK; i++) {
        status = give_pair(&answers, given[i]);
        for (size_t k = 0; k < i && status == FSDP_OK; k++)
            status = check_pairs(given[k], given[i]);
    }
    if (status == FSDP_OK)
        status = answer_all(&answers, io);
    if (status == FSDP_OK)
        status = fsdp_answers_write(&answers, &made);
    answers_fini(&answers);
    if (status == FSDP_OK)
        *config = made;
    else
        fsdp_yaml_fini(&made);
    return status;
}
