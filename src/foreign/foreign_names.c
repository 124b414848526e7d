/* See foreign_names.h. */
#include "src/foreign/foreign_names.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/base/str.h"
#include "src/hf/wrapped_names.h"

enum {
    MAX_PLACES = 32, /* largest number of candidate places */
    MAX_PROBES = 8,  /* largest number of probes, the parameters whose names are searched for
                        (probe()) */
    MAX_TOP = 12,    /* largest number of keys that a message lists */
    UNUSUAL = 1000   /* larger than any depth; rank_of() adds it to the depth of an unusual place */
};

/* ---- items ----------------------------------------------------------------------------------- */

static char *without_wrappers(fsdp_arena *arena, const char *name)
{
    const size_t bytes = strlen(name) + 1;
    char *copy = fsdp_arena_alloc(arena, bytes);
    if (!copy)
        return NULL;
    memcpy(copy, name, bytes);
    fsdp_name_unwrap(copy);
    return copy;
}

static int by_name(const void *a, const void *b)
{
    const fsdp_foreign_item *x = a, *y = b;
    return strcmp(x->name, y->name);
}

static fsdp_status list_items(fsdp_foreign_names *names)
{
    names->n = fsdp_source_count(names->source);
    names->items = fsdp_calloc(names->n, sizeof *names->items);
    if (!names->items)
        return FSDP_ERR_NOMEM;
    for (size_t i = 0; i < names->n; i++) {
        const fsdp_source_item *item = fsdp_source_at(names->source, i);
        names->items[i] = (fsdp_foreign_item){without_wrappers(&names->arena, item->fqn), item};
        if (!names->items[i].name)
            return FSDP_ERR_NOMEM;
    }
    if (names->n)
        qsort(names->items, names->n, sizeof *names->items, by_name);
    return FSDP_OK;
}

fsdp_status fsdp_foreign_names_open(const char *path, fsdp_foreign_names *names)
{
    *names = (fsdp_foreign_names){0};
    fsdp_status status = fsdp_source_open(path, &names->source);
    if (status == FSDP_OK)
        status = list_items(names);
    if (status != FSDP_OK)
        fsdp_foreign_names_close(names);
    return status;
}

void fsdp_foreign_names_close(fsdp_foreign_names *names)
{
    fsdp_free(names->items);
    fsdp_arena_fini(&names->arena);
    fsdp_source_close(names->source);
    *names = (fsdp_foreign_names){0};
}

size_t fsdp_foreign_names_lower_bound(const fsdp_foreign_names *names, const char *prefix)
{
    size_t low = 0, high = names->n;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (strcmp(names->items[middle].name, prefix) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low < names->n && strncmp(names->items[low].name, prefix, strlen(prefix)) == 0
               ? low
               : names->n;
}

fsdp_status fsdp_foreign_names_find(const fsdp_foreign_names *names, const fsdp_source_item **item,
                                    const char *format, ...)
{
    char buffer[1024];
    va_list args;
    *item = NULL;
    va_start(args, format);
    const int length = vsnprintf(buffer, sizeof buffer, format, args);
    va_end(args);
    if (length < 0 || (size_t)length >= sizeof buffer)
        return FSDP_OK; /* no parameter has such a long name */
    const size_t i = fsdp_foreign_names_lower_bound(names, buffer);
    if (i == names->n || strcmp(names->items[i].name, buffer) != 0)
        return FSDP_OK;
    *item = names->items[i].item;
    if (i + 1 < names->n && strcmp(names->items[i + 1].name, buffer) == 0)
        return fsdp_error(FSDP_ERR_INVALID,
                          "%s: '%s' and '%s' are one name, '%s', without the names of wrappers",
                          fsdp_source_path(names->source), names->items[i].item->fqn,
                          names->items[i + 1].item->fqn, buffer);
    return FSDP_OK;
}

char *fsdp_foreign_names_describe_top(const fsdp_foreign_names *names)
{
    fsdp_str text = {0};
    size_t before = 0, shown = 0;
    for (size_t i = 0; i < names->n; i++) {
        const char *name = names->items[i].name;
        const size_t n = strcspn(name, ".");
        const bool same = i && before == n && strncmp(names->items[i - 1].name, name, n) == 0;
        before = n;
        if (same)
            continue;
        if (shown++ < MAX_TOP)
            fsdp_str_printf(&text, "%s'%.*s'", shown > 1 ? ", " : "", (int)n, name);
    }
    if (shown > MAX_TOP)
        fsdp_str_printf(&text, " and %zu more", shown - MAX_TOP);
    if (!shown)
        fsdp_str_printf(&text, "none");
    return fsdp_str_take(&text);
}

/* ---- candidates ------------------------------------------------------------------------------ */

/* A place: a dict in the checkpoint that may contain the model or the optimizer's state. The keys
 * of the items in this dict begin with `prefix`. `wrapper` is used only for a place that may
 * contain the optimizer's state: it is the prefix that a wrapper added to the names of the
 * parameters. */
typedef struct place {
    char *prefix, *wrapper; /* owned */
    bool by_number;
    size_t found; /* number of parameters that are found in this place */
} place;

typedef struct places {
    place items[MAX_PLACES];
    size_t n;
} places;

static void places_fini(places *all)
{
    for (size_t i = 0; i < all->n; i++) {
        fsdp_free(all->items[i].prefix);
        fsdp_free(all->items[i].wrapper);
    }
}

static bool is_text(const char *text, const char *bytes, size_t n)
{
    return strncmp(text, bytes, n) == 0 && !text[n];
}

static fsdp_status add_place(places *all, const char *prefix, size_t n, const char *wrapper,
                             size_t n_wrapper, bool by_number)
{
    for (size_t i = 0; i < all->n; i++)
        if (is_text(all->items[i].prefix, prefix, n) &&
            is_text(all->items[i].wrapper, wrapper, n_wrapper) &&
            all->items[i].by_number == by_number)
            return FSDP_OK;
    if (all->n == MAX_PLACES)
        return FSDP_OK;
    place *p = &all->items[all->n++];
    *p = (place){fsdp_strndup(prefix, n), fsdp_strndup(wrapper, n_wrapper), by_number, 0};
    return p->prefix && p->wrapper ? FSDP_OK : FSDP_ERR_NOMEM;
}

/* Return the rank of a place. A smaller rank is better. A place is usual if it is the top of the
 * checkpoint or below one of the keys `usual`. Every usual place has a smaller rank than every
 * unusual place. Two usual places are compared by depth, and so are two unusual ones: the smaller
 * depth gives the smaller rank. A deeper dict may contain a moving average of the model, or another
 * model. */
static size_t rank_of(const place *p, const char *const *usual)
{
    size_t depth = 0, begin = 0, n = strlen(p->prefix);
    bool known = n == 0;
    for (size_t i = 0; i < n; i++) {
        if (p->prefix[i] != '.')
            continue;
        depth++;
        for (const char *const *u = usual; *u; u++)
            known |= strlen(*u) == i - begin && strncmp(p->prefix + begin, *u, i - begin) == 0;
        begin = i + 1;
    }
    return depth + (known ? 0 : UNUSUAL);
}

/* Return the score of a place. `most` is the largest number of parameters that any place has. A
 * usual place (see rank_of()) with at least half of that number has the score `most`. The score of
 * any other place is the number of its parameters. So a usual place can be chosen even if it lacks
 * some parameters. An error message can then name the missing parameters. */
static size_t score_of(const place *p, const char *const *usual, size_t most)
{
    return rank_of(p, usual) < UNUSUAL && 2 * p->found >= most ? most : p->found;
}

/* Set *best to the best place, or to NULL if no place has any of the parameters. The place with the
 * largest score is the best. If several places have this score, the one with the smallest rank is
 * the best. Return an error if several places have the same score and the same rank. */
static fsdp_status choose_place(const fsdp_foreign_names *names, places *all, const char *what,
                                const char *const *usual, place **best)
{
    const place *rival = NULL;
    size_t most = 0;
    *best = NULL;
    for (size_t i = 0; i < all->n; i++)
        most = all->items[i].found > most ? all->items[i].found : most;
    for (size_t i = 0; i < all->n; i++) {
        place *p = &all->items[i];
        const size_t score = score_of(p, usual, most);
        const size_t other = *best ? score_of(*best, usual, most) : 0;
        if (!score || score < other)
            continue;
        const size_t mine = rank_of(p, usual), least = *best ? rank_of(*best, usual) : SIZE_MAX;
        if (score == other && mine >= least) {
            if (mine == least)
                rival = p;
            continue;
        }
        *best = p;
        rival = NULL;
    }
    if (!rival)
        return FSDP_OK;
    return fsdp_error(FSDP_ERR_INVALID,
                      "%s: more than one %s in it, below '%s%s' and '%s%s': save the one that is "
                      "meant alone, in torch",
                      fsdp_source_path(names->source), what, (*best)->prefix, (*best)->wrapper,
                      rival->prefix, rival->wrapper);
}

/* Return true if `text` [n] is `name`, or ends with a dot and `name`. */
static bool ends_with_name(const char *text, size_t n, const char *name)
{
    const size_t length = strlen(name);
    return n >= length && memcmp(text + n - length, name, length) == 0 &&
           (n == length || text[n - length - 1] == '.');
}

static size_t n_probes(const fsdp_parameter_list *all)
{
    return all->n < MAX_PROBES ? all->n : MAX_PROBES;
}

/* Return the name of probe `i`. Probes are the parameters whose names are searched for. They are
 * spread evenly over the model. */
static const char *probe(const fsdp_parameter_list *all, size_t i)
{
    return all->items[i * all->n / n_probes(all)].name;
}

typedef bool has_fn(const fsdp_foreign_names *names, const place *p, const char *name);

/* Count the parameters that place `p` has. A parameter counts once, even if the place has it under
 * several names. */
static size_t count_found(const fsdp_foreign_names *names, const fsdp_parameter_list *all,
                          const place *p, has_fn *has)
{
    size_t found = 0;
    for (size_t i = 0; i < all->n; i++) {
        bool counted = !has(names, p, all->items[i].name);
        for (size_t k = 0; k < i && !counted; k++)
            counted = all->items[k].parameter == all->items[i].parameter &&
                      has(names, p, all->items[k].name);
        found += !counted;
    }
    return found;
}

/* ---- finding the model ----------------------------------------------------------------------- */

static bool has_tensor(const fsdp_foreign_names *names, const place *p, const char *name)
{
    const fsdp_source_item *item;
    return fsdp_foreign_names_find(names, &item, "%s%s", p->prefix, name) == FSDP_OK && item &&
           item->dtype_name;
}

static fsdp_status propose_models(const fsdp_foreign_names *names, const fsdp_parameter_list *all,
                                  places *to)
{
    for (size_t k = 0; k < names->n; k++) {
        const char *name = names->items[k].name;
        const size_t n = strlen(name);
        for (size_t i = 0; i < n_probes(all) && names->items[k].item->dtype_name; i++)
            if (ends_with_name(name, n, probe(all, i)))
                FSDP_TRY(add_place(to, name, n - strlen(probe(all, i)), "", 0, false));
    }
    return FSDP_OK;
}

fsdp_status fsdp_foreign_find_model(const fsdp_foreign_names *names, const fsdp_parameter_list *all,
                                    char **prefix)
{
    static const char *const usual[] = {"model", "state_dict", "model_state_dict", "module", NULL};
    places found = {0};
    place *best = NULL;
    fsdp_status status = propose_models(names, all, &found);
    for (size_t i = 0; i < found.n; i++)
        found.items[i].found = count_found(names, all, &found.items[i], has_tensor);
    if (status == FSDP_OK)
        status = choose_place(names, &found, "model", usual, &best);
    *prefix = NULL;
    if (status == FSDP_OK && best) {
        *prefix = best->prefix;
        best->prefix = NULL;
    }
    places_fini(&found);
    return status;
}

/* ---- finding the optimizer ------------------------------------------------------------------- */

static const char STATE[] = "state.";

static bool has_state(const fsdp_foreign_names *names, const place *p, const char *name)
{
    char *all = fsdp_strdup_printf("%s%s%s%s.", p->prefix, STATE, p->wrapper, name);
    const bool yes = all && fsdp_foreign_names_lower_bound(names, all) < names->n;
    fsdp_free(all);
    return yes;
}

/* Return how many of the numbers 0 to `most` - 1 have optimizer state in the place `p`. The keys of
 * this state are "state.<number>.<key>", where <number> is the number of a parameter. */
static size_t count_numbers(const fsdp_foreign_names *names, const place *p, size_t most)
{
    size_t found = 0;
    for (size_t i = 0; i < most; i++) {
        char *all = fsdp_strdup_printf("%s%s%zu.", p->prefix, STATE, i);
        found += all && fsdp_foreign_names_lower_bound(names, all) < names->n;
        fsdp_free(all);
    }
    return found;
}

static bool is_number(const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!isdigit((unsigned char)text[i]))
            return false;
    return n > 0;
}

/* `name` is the name of an item, which ends in "state.<parameter>.<key>", and `rest` points to
 * "<parameter>.<key>" in `name`. The part of `name` before "state." is the prefix of a place. If
 * <parameter> is a number, or ends with one of the names that probe() returns, this place may
 * contain the optimizer's state. So add the place to `to`. */
static fsdp_status propose_of(const char *name, const char *rest, const fsdp_parameter_list *all,
                              places *to)
{
    const char *key = strrchr(rest, '.');
    const size_t prefix = (size_t)(rest - name) - (sizeof STATE - 1);
    if (!key)
        return FSDP_OK;
    const size_t n = (size_t)(key - rest);
    if (is_number(rest, n))
        return add_place(to, name, prefix, "", 0, true);
    for (size_t i = 0; i < n_probes(all); i++)
        if (ends_with_name(rest, n, probe(all, i)))
            FSDP_TRY(add_place(to, name, prefix, rest, n - strlen(probe(all, i)), false));
    return FSDP_OK;
}

static fsdp_status propose_optimizers(const fsdp_foreign_names *names,
                                      const fsdp_parameter_list *all, places *to)
{
    for (size_t k = 0; k < names->n; k++) {
        const char *name = names->items[k].name;
        for (const char *at = strstr(name, STATE); at; at = strstr(at + 1, STATE))
            if (at == name || at[-1] == '.')
                FSDP_TRY(propose_of(name, at + sizeof STATE - 1, all, to));
    }
    return FSDP_OK;
}

fsdp_status fsdp_foreign_find_optimizer(const fsdp_foreign_names *names,
                                        const fsdp_parameter_list *all,
                                        fsdp_foreign_optimizer *optimizer)
{
    static const char *const usual[] = {"optim", "optimizer", "optimizer_state_dict",
                                        "optim_state_dict", NULL};
    places found = {0};
    place *best = NULL;
    fsdp_status status = propose_optimizers(names, all, &found);
    for (size_t i = 0; i < found.n; i++)
        found.items[i].found = found.items[i].by_number
                                   ? count_numbers(names, &found.items[i], all->n)
                                   : count_found(names, all, &found.items[i], has_state);
    if (status == FSDP_OK)
        status = choose_place(names, &found, "optimizer", usual, &best);
    *optimizer = (fsdp_foreign_optimizer){0};
    if (status == FSDP_OK && best) {
        *optimizer = (fsdp_foreign_optimizer){best->prefix, best->wrapper, best->by_number};
        best->prefix = best->wrapper = NULL;
    }
    places_fini(&found);
    return status;
}

void fsdp_foreign_optimizer_fini(fsdp_foreign_optimizer *optimizer)
{
    fsdp_free(optimizer->base);
    fsdp_free(optimizer->wrapper);
    *optimizer = (fsdp_foreign_optimizer){0};
}
