/* Reads and searches lists of titles. A list is read completely, sorted by strcmp(), and searched
 * by bisection. */
#include "src/data/rows/titles.h"

#include <stdlib.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/io.h"
#include "src/base/str.h"
#include "src/data/files/lines.h"
#include "src/data/rows/wikihow.h"

struct fsdp_titles {
    fsdp_str text;       /* the titles, each followed by NUL */
    const char **sorted; /* [count] pointers into text */
    /* places: [count] offsets of the titles in `text`, used while `text` grows. */
    size_t *places, count;
    size_t places_cap;
};

/* ---- finding the file of a list ---- */

static fsdp_status path_beside(const char *file, const char *name, char **path)
{
    char *folder = fsdp_path_parent(file);
    *path = folder ? fsdp_path_join(folder, name) : NULL;
    fsdp_free(folder);
    return *path ? FSDP_OK : FSDP_ERR_NOMEM;
}

fsdp_status fsdp_titles_find(const char *file, fsdp_split split, char **path)
{
    const bool validation = split == FSDP_SPLIT_VALIDATION;
    static const char *const names[] = {"all_train.txt", "all_val.txt"};
    char *wanted = NULL, *other = NULL;
    *path = NULL;
    if (split == FSDP_SPLIT_ALL)
        return FSDP_OK;
    fsdp_status status = path_beside(file, names[validation], &wanted);
    if (status == FSDP_OK)
        status = path_beside(file, names[!validation], &other);
    if (status == FSDP_OK && fsdp_path_is_file(wanted)) {
        *path = wanted;
        wanted = NULL;
    } else if (status == FSDP_OK && fsdp_path_is_file(other)) {
        status = fsdp_error(FSDP_ERR_NOT_FOUND, "%s: missing, though there is %s", wanted,
                            names[!validation]);
    }
    fsdp_free(wanted);
    fsdp_free(other);
    return status;
}

/* ---- reading a list ---- */

/* Do the same as Python's title.strip().replace(" ", ""). Set *title to the first byte of the
 * result. Returns the length of the result. */
static size_t normalize_title(char **title, size_t length)
{
    size_t kept = 0;
    length = fsdp_wikihow_strip(title, length);
    for (size_t i = 0; i < length; i++)
        if ((*title)[i] != ' ')
            (*title)[kept++] = (*title)[i];
    (*title)[kept] = 0;
    return kept;
}

static fsdp_status add_line(fsdp_titles *titles, const fsdp_line *line)
{
    if (!FSDP_GROW(titles->places, titles->places_cap, titles->count + 1))
        return FSDP_ERR_NOMEM;
    titles->places[titles->count++] = titles->text.len;
    fsdp_str_append(&titles->text, line->text, line->length);
    fsdp_str_append(&titles->text, "", 1);
    return titles->text.failed ? fsdp_error_nomem() : FSDP_OK;
}

static int compare_titles(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Normalize and sort the titles. From now on `text` does not grow, so its memory does not move. The
 * function therefore replaces the offsets of the titles (`places`) by pointers into `text`
 * (`sorted`). */
static fsdp_status sort_titles(fsdp_titles *titles)
{
    titles->sorted = fsdp_calloc(titles->count + 1, sizeof *titles->sorted);
    if (!titles->sorted)
        return FSDP_ERR_NOMEM;
    for (size_t i = 0; i < titles->count; i++) {
        char *title = titles->text.data + titles->places[i];
        (void)normalize_title(&title, strlen(title));
        titles->sorted[i] = title;
    }
    if (titles->count)
        qsort(titles->sorted, titles->count, sizeof *titles->sorted, compare_titles);
    return FSDP_OK;
}

static fsdp_status read_lines(fsdp_titles *titles, const char *path)
{
    fsdp_lines *lines;
    fsdp_line line;
    fsdp_status status;
    FSDP_TRY(fsdp_lines_open(path, &lines));
    while ((status = fsdp_lines_next(lines, &line)) == FSDP_OK && line.text)
        if ((status = add_line(titles, &line)) != FSDP_OK)
            break;
    fsdp_lines_close(lines);
    return status;
}

fsdp_status fsdp_titles_open(const char *path, fsdp_titles **out)
{
    fsdp_titles *titles = fsdp_calloc(1, sizeof *titles);
    if (!titles)
        return FSDP_ERR_NOMEM;
    fsdp_status status = read_lines(titles, path);
    if (status == FSDP_OK)
        status = sort_titles(titles);
    if (status == FSDP_OK)
        *out = titles;
    else
        fsdp_titles_close(titles);
    return status;
}

void fsdp_titles_close(fsdp_titles *titles)
{
    if (!titles)
        return;
    fsdp_str_fini(&titles->text);
    fsdp_free(titles->places);
    fsdp_free((void *)titles->sorted);
    fsdp_free(titles);
}

bool fsdp_titles_have(const fsdp_titles *titles, char *title, size_t length)
{
    (void)normalize_title(&title, length);
    const char *key = title;
    return titles->count &&
           bsearch(&key, titles->sorted, titles->count, sizeof key, compare_titles);
}
