/* See str.h. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/str.h"

/* Make sure that n more bytes and a NUL can be appended. Return false when out of memory. */
static bool reserve_room(fsdp_str *s, size_t n)
{
    if (!s->failed && !FSDP_GROW(s->data, s->cap, s->len + n + 1))
        s->failed = true;
    return !s->failed;
}

void fsdp_str_append(fsdp_str *s, const char *bytes, size_t n)
{
    if (!reserve_room(s, n))
        return;
    if (n) /* `bytes` may be NULL if there are none */
        memcpy(s->data + s->len, bytes, n);
    s->len += n;
    s->data[s->len] = 0;
}

void fsdp_str_printf(fsdp_str *s, const char *format, ...)
{
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, format, args);
    if (n < 0)
        s->failed = true;
    else if (reserve_room(s, (size_t)n)) {
        vsnprintf(s->data + s->len, (size_t)n + 1, format, again);
        s->len += (size_t)n;
    }
    va_end(again);
    va_end(args);
}

char *fsdp_str_take(fsdp_str *s)
{
    fsdp_str_append(s, "", 0);
    char *text = s->data;
    if (s->failed) {
        fsdp_free(text);
        text = NULL;
        (void)fsdp_error_nomem();
    }
    *s = (fsdp_str){0};
    return text;
}

void fsdp_str_fini(fsdp_str *s)
{
    fsdp_free(s->data);
    *s = (fsdp_str){0};
}

void fsdp_text_printf(fsdp_text *t, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int n = vsnprintf(t->at, t->left, format, args);
    va_end(args);
    size_t used = n < 0 ? 0 : (size_t)n < t->left ? (size_t)n : t->left - 1;
    t->at += used;
    t->left -= used;
}

fsdp_status fsdp_names_add(char ***names, size_t *n, size_t *cap, const char *name)
{
    char *copy = fsdp_strdup(name);
    if (!copy || !FSDP_GROW(*names, *cap, *n + 1)) {
        fsdp_free(copy);
        return FSDP_ERR_NOMEM;
    }
    (*names)[(*n)++] = copy;
    return FSDP_OK;
}

void fsdp_names_free(char **names, size_t n)
{
    for (size_t i = 0; i < n; i++)
        fsdp_free(names[i]);
    fsdp_free(names);
}

bool fsdp_ends_with(const char *text, const char *end)
{
    const size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}
