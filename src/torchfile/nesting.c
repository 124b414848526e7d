/* Writes items as nested dicts and lists. write_below() calls itself for each level of keys. */
#include <stdlib.h>
#include <string.h>

#include "src/torchfile/nesting.h"

void fsdp_nesting_join(fsdp_str *fqn, int i, const char *name, int64_t index)
{
    const char *dot = i ? "." : "";
    if (name)
        fsdp_str_printf(fqn, "%s%s", dot, name);
    else
        fsdp_str_printf(fqn, "%s%lld", dot, (long long)index);
}

static bool has_key(const fsdp_nesting *n, size_t i, int level)
{
    fsdp_nesting_key key;
    return n->key(n->context, i, level, &key);
}

/* Return true if items a and b have the same key at `level`. Their keys before `level` are known to
 * be the same. */
static bool same_key(const fsdp_nesting *n, size_t a, size_t b, int level)
{
    fsdp_nesting_key x, y;
    if (!n->key(n->context, a, level, &x) || !n->key(n->context, b, level, &y))
        return false;
    if (!x.name || !y.name)
        return !x.name && !y.name && x.index == y.index;
    return x.is_int == y.is_int && strcmp(x.name, y.name) == 0;
}

static fsdp_status check_key(const fsdp_nesting *n, size_t i, int level, bool is_dict,
                             int64_t place)
{
    fsdp_nesting_key key;
    if (n->key(n->context, i, level, &key) && is_dict == (key.name != NULL) &&
        (is_dict || key.index == place))
        return FSDP_OK;
    return fsdp_error(FSDP_ERR_INVALID, "%s: '%s' is neither a dict's item nor a list's", n->path,
                      n->name(n->context, i));
}

static void write_key(const fsdp_nesting *n, size_t i, int level, fsdp_pickle_writer *pickle)
{
    fsdp_nesting_key key;
    if (!n->key(n->context, i, level, &key) || !key.name)
        return;
    if (key.is_int)
        fsdp_pickle_put_int(pickle, strtoll(key.name, NULL, 10));
    else
        fsdp_pickle_put_str(pickle, key.name);
}

/* Find the end of a run: consecutive items with the same key at `level`. Item i is the first item
 * of the run. Set *next to the index after the last item of the run, which is at most `end`.
 * Returns FSDP_ERR_INVALID if two items of the run conflict, like "a" and "a.b". */
static fsdp_status find_end(const fsdp_nesting *n, size_t i, size_t end, int level, size_t *next)
{
    size_t k = i + 1;
    for (; k < end && same_key(n, i, k, level); k++)
        if (!has_key(n, i, level + 1) || !has_key(n, k, level + 1))
            return fsdp_error(FSDP_ERR_INVALID,
                              "%s: '%s' and '%s': one is a value, the other in it", n->path,
                              n->name(n->context, i), n->name(n->context, k));
    *next = k;
    return FSDP_OK;
}

/* Write items [begin, end) as one dict or list. Their first `level` keys are the same. */
static fsdp_status write_below(const fsdp_nesting *n, size_t begin, size_t end, int level,
                               fsdp_pickle_writer *pickle)
{
    fsdp_nesting_key first = {.name = ""};
    if (begin < end)
        (void)n->key(n->context, begin, level, &first);
    const bool is_dict = first.name != NULL;
    if (pickle->depth == FSDP_PICKLE_MAX_DEPTH)
        return fsdp_error(FSDP_ERR_INVALID, "%s: '%s' is nested too deeply", n->path,
                          n->name(n->context, begin));
    fsdp_pickle_begin(pickle, is_dict ? FSDP_PICKLE_DICT : FSDP_PICKLE_LIST);
    int64_t place = 0;
    for (size_t i = begin, next = begin; i < end; i = next, place++) {
        FSDP_TRY(check_key(n, i, level, is_dict, place));
        FSDP_TRY(find_end(n, i, end, level, &next));
        write_key(n, i, level, pickle);
        FSDP_TRY(has_key(n, i, level + 1) ? write_below(n, i, next, level + 1, pickle)
                                          : n->write_item(n->context, i));
    }
    fsdp_pickle_end(pickle);
    return FSDP_OK;
}

fsdp_status fsdp_nesting_write(const fsdp_nesting *nesting, size_t n, fsdp_pickle_writer *pickle)
{
    return write_below(nesting, 0, n, 0, pickle);
}
