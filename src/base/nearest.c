/* Finds near names by their edit distance: optimal string alignment (Damerau 1964, but no substring
 * is edited more than once), computed with three rolling rows. */
#include <ctype.h>
#include <stdbool.h>
#include <string.h>

#include "src/base/nearest.h"

enum {
    MAX_WORD = 63,
    EDIT = 2,     /* cost of an insertion, deletion, replacement or swap */
    CASE_EDIT = 1 /* cost of changing the case of a letter */
};

static char dash_for_underscore(char c)
{
    return c == '_' ? '-' : c;
}

static int replace_cost(char a, char b)
{
    a = dash_for_underscore(a);
    b = dash_for_underscore(b);
    if (a == b)
        return 0;
    return tolower((unsigned char)a) == tolower((unsigned char)b) ? CASE_EDIT : EDIT;
}

static int smaller(int a, int b)
{
    return a < b ? a : b;
}

int fsdp_edit_distance(const char *a, const char *b)
{
    int rows[3][MAX_WORD + 1];
    int *before = rows[0], *above = rows[1], *row = rows[2];
    int length_a = (int)strnlen(a, MAX_WORD), length_b = (int)strnlen(b, MAX_WORD);
    for (int j = 0; j <= length_b; j++)
        row[j] = j * EDIT;
    for (int i = 1; i <= length_a; i++) {
        int *oldest = before;
        before = above;
        above = row;
        row = oldest;
        row[0] = i * EDIT;
        for (int j = 1; j <= length_b; j++) {
            row[j] = smaller(above[j], row[j - 1]) + EDIT;
            row[j] = smaller(row[j], above[j - 1] + replace_cost(a[i - 1], b[j - 1]));
            if (i > 1 && j > 1 && dash_for_underscore(a[i - 1]) == dash_for_underscore(b[j - 2]) &&
                dash_for_underscore(a[i - 2]) == dash_for_underscore(b[j - 1]))
                row[j] = smaller(row[j], before[j - 2] + EDIT);
        }
    }
    return row[length_b];
}

static bool differs_in_case_only(const char *a, const char *b)
{
    while (*a && tolower((unsigned char)dash_for_underscore(*a)) ==
                     tolower((unsigned char)dash_for_underscore(*b)))
        a++, b++;
    return !*a && !*b;
}

/* Return true if `word` is one or more consecutive parts of `name` and has at least 3 letters.
 * Dashes separate the parts: "dtype" is a part of "param-dtype". */
static bool is_part(const char *word, const char *name)
{
    enum {
        LEAST = 3
    };
    size_t length = strlen(word);
    for (const char *at = name; length >= LEAST && *at; at += *at == '-') {
        size_t i = 0;
        while (i < length && dash_for_underscore(word[i]) == at[i])
            i++;
        if (i == length && (at[i] == 0 || at[i] == '-'))
            return true;
        at += strcspn(at, "-");
    }
    return false;
}

/* Return the index of the shortest name that has `word` as a part, or -1 if there is none. */
static int name_with_part(const char *word, const char *const *names, size_t count)
{
    int best = -1;
    for (size_t i = 0; i < count; i++)
        if (is_part(word, names[i]) && (best < 0 || strlen(names[i]) < strlen(names[best])))
            best = (int)i;
    return best;
}

int fsdp_nearest_name(const char *word, const char *const *names, size_t count)
{
    int best = -1, best_distance = 0;
    size_t length = strlen(word);
    for (size_t i = 0; i < count; i++) {
        size_t name_length = strlen(names[i]);
        size_t longer = length > name_length ? length : name_length;
        int distance = fsdp_edit_distance(word, names[i]);
        bool begins = length >= 2 && strncmp(word, names[i], length) == 0;
        bool same = differs_in_case_only(word, names[i]);
        if (!begins && !same && (size_t)distance * 3 > longer * EDIT)
            continue;
        if (begins && distance > EDIT)
            /* `word` is the beginning of the name, so the letters that are missing count as one
             * edit in all. */
            distance = EDIT;
        if (same && distance > CASE_EDIT)
            distance = CASE_EDIT;
        if (best < 0 || distance < best_distance) {
            best = (int)i;
            best_distance = distance;
        }
    }
    return best >= 0 ? best : name_with_part(word, names, count);
}
