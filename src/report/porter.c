/* See porter.h. The steps have the names and the order of the paper. A rule replaces a suffix if a
 * condition about the stem, which is the rest of the word, is true. Only one rule of a step is
 * tried: the first rule whose suffix the word has. If its condition is false, the step does not
 * change the word. */
#include <stdbool.h>
#include <string.h>

#include "src/base/assert.h"
#include "src/report/porter.h"

typedef struct word {
    char *text;
    size_t length;
} word;

/* --- properties of the first `n` letters --- */

static bool is_vowel_letter(char c)
{
    return c == 'a' || c == 'e' || c == 'i' || c == 'o' || c == 'u';
}

/* Return true if letter `i` is a consonant. The letter y is a vowel if the letter before it is a
 * consonant, otherwise it is a consonant. So in "yyyy", consonants and vowels alternate. */
static bool is_consonant(const char *text, size_t i)
{
    bool negate = false;
    if (is_vowel_letter(text[i]))
        return false;
    for (; i > 0 && text[i] == 'y'; i--)
        negate = !negate;
    return !is_vowel_letter(text[i]) != negate;
}

/* Return how often a consonant follows a vowel. Set *vowel to true if there is a vowel. */
static size_t count_groups(const char *text, size_t n, bool *vowel)
{
    size_t groups = 0;
    bool before = true; /* true: the previous letter is a consonant */
    *vowel = false;
    for (size_t i = 0; i < n; i++) {
        const bool consonant = text[i] == 'y' ? i == 0 || !before : !is_vowel_letter(text[i]);
        groups += i > 0 && consonant && !before;
        *vowel |= !consonant;
        before = consonant;
    }
    return groups;
}

static size_t measure(const word *w, size_t n)
{
    bool vowel;
    return count_groups(w->text, n, &vowel);
}

static bool has_vowel(const word *w, size_t n)
{
    bool vowel;
    count_groups(w->text, n, &vowel);
    return vowel;
}

/* Return true if the letters end with consonant, vowel, consonant, and the last letter is not w, x
 * or y. Also return true if there are only two letters, a vowel and a consonant. */
static bool ends_cvc(const word *w, size_t n)
{
    const char *t = w->text;
    if (n == 2)
        return !is_consonant(t, 0) && is_consonant(t, 1);
    return n >= 3 && is_consonant(t, n - 3) && !is_consonant(t, n - 2) && is_consonant(t, n - 1) &&
           t[n - 1] != 'w' && t[n - 1] != 'x' && t[n - 1] != 'y';
}

/* --- rules --- */

static bool ends_with(const word *w, const char *suffix)
{
    const size_t n = strlen(suffix);
    return w->length >= n && memcmp(w->text + w->length - n, suffix, n) == 0;
}

/* Replace the last `n` letters. */
static void replace(word *w, size_t n, const char *by)
{
    const size_t length = strlen(by);
    memcpy(w->text + w->length - n, by, length);
    w->length += length - n;
}

typedef struct rule {
    const char *suffix, *by;
} rule;

/* Apply the first rule whose suffix the word has, if the measure of the stem is above `least`. */
static void apply(word *w, const rule *rules, size_t n, size_t least)
{
    for (size_t i = 0; i < n; i++) {
        const size_t length = strlen(rules[i].suffix);
        if (!ends_with(w, rules[i].suffix))
            continue;
        if (measure(w, w->length - length) > least)
            replace(w, length, rules[i].by);
        return;
    }
}

/* --- steps --- */

static void step_1a(word *w)
{
    if (ends_with(w, "ies"))
        replace(w, 3, w->length == 4 ? "ie" : "i");
    else if (ends_with(w, "sses"))
        replace(w, 4, "ss");
    else if (ends_with(w, "s") && !ends_with(w, "ss"))
        w->length--;
}

/* The second part of step 1b, after "ed" or "ing" was removed. */
static void repair_1b(word *w)
{
    const size_t n = w->length;
    const char last = w->text[n - 1];
    if (ends_with(w, "at") || ends_with(w, "bl") || ends_with(w, "iz")) {
        replace(w, 0, "e");
    } else if (n >= 2 && last == w->text[n - 2] && is_consonant(w->text, n - 1)) {
        if (last != 'l' && last != 's' && last != 'z')
            w->length--;
    } else if (measure(w, n) == 1 && ends_cvc(w, n)) {
        replace(w, 0, "e");
    }
}

static void step_1b(word *w)
{
    if (ends_with(w, "ied")) {
        replace(w, 3, w->length == 4 ? "ie" : "i");
        return;
    }
    if (ends_with(w, "eed")) {
        if (measure(w, w->length - 3) > 0)
            w->length--;
        return;
    }
    const size_t n = ends_with(w, "ed") ? 2 : ends_with(w, "ing") ? 3 : 0;
    if (n == 0 || !has_vowel(w, w->length - n))
        return;
    w->length -= n;
    repair_1b(w);
}

static void step_1c(word *w)
{
    if (ends_with(w, "y") && w->length > 2 && is_consonant(w->text, w->length - 2))
        w->text[w->length - 1] = 'i';
}

static void step_2(word *w)
{
    static const rule rules[] = {{"ational", "ate"}, {"tional", "tion"}, {"enci", "ence"},
                                 {"anci", "ance"},   {"izer", "ize"},    {"bli", "ble"},
                                 {"alli", "al"},     {"entli", "ent"},   {"eli", "e"},
                                 {"ousli", "ous"},   {"ization", "ize"}, {"ation", "ate"},
                                 {"ator", "ate"},    {"alism", "al"},    {"iveness", "ive"},
                                 {"fulness", "ful"}, {"ousness", "ous"}, {"aliti", "al"},
                                 {"iviti", "ive"},   {"biliti", "ble"},  {"fulli", "ful"}};
    while (ends_with(w, "alli") && measure(w, w->length - 4) > 0)
        replace(w, 4, "al");
    const size_t before = w->length;
    apply(w, rules, FSDP_LENGTH(rules), 0);
    /* in this rule, the l of "logi" counts as a part of the stem */
    if (w->length == before && ends_with(w, "logi") && measure(w, w->length - 3) > 0)
        w->length--;
}

static void step_3(word *w)
{
    static const rule rules[] = {{"icate", "ic"}, {"ative", ""}, {"alize", "al"}, {"iciti", "ic"},
                                 {"ical", "ic"},  {"ful", ""},   {"ness", ""}};
    apply(w, rules, FSDP_LENGTH(rules), 0);
}

static void step_4(word *w)
{
    static const char *const before[] = {"al",   "ance", "ence",  "er",   "ic", "able",
                                         "ible", "ant",  "ement", "ment", "ent"};
    static const char *const after[] = {"ou", "ism", "ate", "iti", "ous", "ive", "ize"};
    for (size_t i = 0; i < FSDP_LENGTH(before); i++)
        if (ends_with(w, before[i])) {
            const rule removal = {before[i], ""};
            apply(w, &removal, 1, 1);
            return;
        }
    if (ends_with(w, "ion")) {
        const size_t n = w->length - 3;
        if (measure(w, n) > 1 && (w->text[n - 1] == 's' || w->text[n - 1] == 't'))
            w->length = n;
        return;
    }
    for (size_t i = 0; i < FSDP_LENGTH(after); i++)
        if (ends_with(w, after[i])) {
            const rule removal = {after[i], ""};
            apply(w, &removal, 1, 1);
            return;
        }
}

static void step_5(word *w)
{
    if (ends_with(w, "e")) {
        const size_t n = w->length - 1, m = measure(w, n);
        if (m > 1 || (m == 1 && !ends_cvc(w, n)))
            w->length = n;
    }
    if (ends_with(w, "ll") && measure(w, w->length - 1) > 1)
        w->length--;
}

/* If the word is irregular, replace it by its stem and return true. */
static bool replace_irregular(word *w)
{
    static const rule words[] = {
        {"sky", "sky"},        {"skies", "sky"},        {"news", "news"},
        {"innings", "inning"}, {"inning", "inning"},    {"outings", "outing"},
        {"outing", "outing"},  {"cannings", "canning"}, {"canning", "canning"},
        {"howe", "howe"},      {"proceed", "proceed"},  {"exceed", "exceed"},
        {"succeed", "succeed"}};
    if (w->length == 5 && ends_with(w, "ying") && strchr("dlt", w->text[0])) {
        replace(w, 4, "ie"); /* "dying" becomes "die", and "tying" becomes "tie" */
        return true;
    }
    for (size_t i = 0; i < FSDP_LENGTH(words); i++)
        if (strlen(words[i].suffix) == w->length && ends_with(w, words[i].suffix)) {
            replace(w, w->length, words[i].by);
            return true;
        }
    return false;
}

void fsdp_porter_stem(char *text, size_t *length)
{
    word w = {text, *length};
    if (replace_irregular(&w)) {
        *length = w.length;
        return;
    }
    if (w.length <= 2)
        return;
    step_1a(&w);
    step_1b(&w);
    step_1c(&w);
    step_2(&w);
    step_3(&w);
    step_4(&w);
    step_5(&w);
    *length = w.length;
}
