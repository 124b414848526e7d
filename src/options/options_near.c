/* Finds the option that an unknown name probably means. A wrong suggestion would lead a user away
 * from the right option. So a name is near only if it has the same words with typing errors, or if
 * the unknown name is a part of it. Nothing is suggested if two options are equally near. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "src/base/nearest.h"
#include "src/options/options_parse.h"

enum {
    EDIT = 2,     /* cost of an edit in fsdp_edit_distance() */
    NEVER = 1000, /* cost of names that are not near */
    /* A word with at least this many letters may have two typing errors instead of one. */
    LONG_WORD = 7,
    LETTERS_PER_EDIT = 8,
    LEAST_PART = 3, /* an unknown name with at least this many letters may be a part of a name */
    PART_COST = 3 * EDIT
};

static char plain(char c)
{
    return c == '_' ? '-' : (char)tolower((unsigned char)c);
}

/* Copy a name without its dashes. */
static void join_words(const char *name, char out[OPTION_NAME_BYTES])
{
    size_t n = 0;
    for (; *name && n + 1 < OPTION_NAME_BYTES; name++)
        if (plain(*name) != '-')
            out[n++] = plain(*name);
    out[n] = 0;
}

static size_t count_words(const char *name)
{
    size_t n = 1;
    for (; *name; name++)
        n += plain(*name) == '-';
    return n;
}

/* Copy the word at the beginning of *name, and advance *name past it and the dash after it. */
static void next_word(const char **name, char word[OPTION_NAME_BYTES])
{
    size_t n = 0;
    for (; **name && plain(**name) != '-'; (*name)++)
        if (n + 1 < OPTION_NAME_BYTES)
            word[n++] = plain(**name);
    *name += **name != 0;
    word[n] = 0;
}

/* Return the cost of turning one word into the other, or NEVER if they are different words. */
static int word_cost(const char *a, const char *b)
{
    const size_t la = strlen(a), lb = strlen(b), shorter = la < lb ? la : lb,
                 longer = la < lb ? lb : la;
    const int cost = fsdp_edit_distance(a, b);
    const int edits = shorter < 3 ? (longer >= 3 && shorter == 2) : longer >= LONG_WORD ? 2 : 1;
    return cost <= edits * EDIT ? cost : NEVER;
}

/* Return true if the letters of `word` are in `name` in the same order. */
static bool is_subsequence(const char *word, const char *name)
{
    for (; *name && *word; name++)
        word += plain(*word) == plain(*name);
    return !*word;
}

static int typing_cost(const char *word, const char *name)
{
    char a[OPTION_NAME_BYTES], b[OPTION_NAME_BYTES];
    const size_t longer = strlen(word) > strlen(name) ? strlen(word) : strlen(name);
    int sum = 0;
    if (count_words(word) != count_words(name)) {
        join_words(word, a);
        join_words(name, b);
        sum = fsdp_edit_distance(a, b);
        return sum <= EDIT ? sum + 1 : NEVER;
    }
    for (const char *w = word, *n = name; *w || *n;) {
        next_word(&w, a);
        next_word(&n, b);
        sum += word_cost(a, b);
    }
    return sum <= EDIT * (int)(1 + longer / LETTERS_PER_EDIT) ? sum : NEVER;
}

/* Return true if `name` contains `word` as one or more of its consecutive words, or if `name`
 * begins with `word`. In the second case, `word` may end within a word of `name`. */
static bool is_part(const char *word, const char *name)
{
    const size_t n = strlen(word);
    for (const char *at = name; n >= LEAST_PART && *at;) {
        size_t i = 0;
        while (i < n && at[i] && plain(word[i]) == plain(at[i]))
            i++;
        if (i == n && (!at[i] || plain(at[i]) == '-' || at == name))
            return true;
        while (*at && plain(*at) != '-')
            at++;
        at += *at != 0;
    }
    return false;
}

/* The nearest option that was found so far. */
typedef struct found {
    int option, cost;
    bool same_letters; /* `name` contains all letters of the unknown name, in the same order */
    bool several;      /* another option is equally near, so there is no suggestion */
    char name[OPTION_NAME_BYTES];
} found;

static void try_name(const char *word, const char *name, int option, bool is_supported, found *best)
{
    int cost = typing_cost(word, name);
    if (cost == NEVER || cost > PART_COST)
        cost = is_supported && is_part(word, name) ? PART_COST : NEVER;
    if (cost == NEVER || cost > best->cost)
        return;
    const bool same_letters = is_subsequence(word, name);
    const bool better = cost < best->cost || (same_letters && !best->same_letters);
    if (!better && same_letters == best->same_letters && option != best->option)
        best->several = true;
    if (!better)
        return;
    *best = (found){.option = option, .cost = cost, .same_letters = same_letters};
    snprintf(best->name, sizeof best->name, "%s", name);
}

int fsdp_options_nearest(const fsdp_options_spec *spec, const char *word,
                         char name[OPTION_NAME_BYTES])
{
    static const char *const built_in[] = {"help", "config", "print-config"};
    found best = {.option = -1, .cost = NEVER - 1};
    for (int i = 0; i < 3; i++)
        try_name(word, built_in[i], -2 - i, true, &best);
    for (size_t i = 0; i < spec->count; i++) {
        const fsdp_option *option = &spec->table[i];
        try_name(word, option->name, (int)i, !option->instead, &best);
        for (const char *alias = option->aliases; alias && *alias;) {
            char text[OPTION_NAME_BYTES];
            const size_t n = strcspn(alias, ",");
            snprintf(text, sizeof text, "%.*s", (int)n, alias);
            try_name(word, text, (int)i, !option->instead, &best);
            alias += n + (alias[n] == ',');
        }
    }
    if (best.option == -1 || best.several)
        return -1;
    snprintf(name, OPTION_NAME_BYTES, "%s", best.name);
    return best.option < 0 ? (int)spec->count : best.option;
}
