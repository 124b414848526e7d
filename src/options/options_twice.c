/* Checks flags that the command line gives more than once with different values. If the name is the
 * same, the last value counts, as in argparse. This is how a script overrides its own flags: run.sh
 * --lr 0.1 --lr 0.2. A note names the value that does not count (fsdp_options_notes()). For options
 * with `several`, such as files of data, two different values are an error, because the user may
 * believe that both count. Two names of one option are an error, because the user may believe that
 * they are two options. */
#include <string.h>

#include "src/base/alloc.h"
#include "src/options/options_parse.h"

/* Return the name in a flag as the user wrote it: without the dashes before it, and without "no-"
 * if the flag is --no-NAME. */
static const char *name_of(const fsdp_option_given *given)
{
    return given->where + strspn(given->where, "-") + (given->negated ? strlen("no-") : 0);
}

static bool has_same_name(const fsdp_option_given *a, const fsdp_option_given *b)
{
    return fsdp_option_same_name(name_of(a), name_of(b), strlen(name_of(b)));
}

/* Append a flag with its value, as on the command line. */
static void append_flag(fsdp_str *out, const fsdp_option_given *given)
{
    fsdp_str_printf(out, "%s%s%.200s", given->where, given->text ? " " : "",
                    given->text ? given->text : "");
}

static fsdp_status contradiction(const fsdp_option *option, const fsdp_option_given *a,
                                 const fsdp_option_given *b)
{
    fsdp_str first = {0}, second = {0};
    append_flag(&first, a);
    append_flag(&second, b);
    const fsdp_status status = fsdp_error(
        FSDP_ERR_INVALID,
        "%s contradicts %s: both are names of the option --%s; leave one of them out",
        first.data ? first.data : a->where, second.data ? second.data : b->where, option->name);
    fsdp_str_fini(&first);
    fsdp_str_fini(&second);
    return status;
}

/* Return the index of the last flag with the same name as given[i], which is `i` if no such flag
 * follows. */
static size_t last_with_name(const fsdp_option_given *given, size_t n_given, size_t i)
{
    for (size_t k = n_given; --k > i;)
        if (given[k].index == given[i].index && has_same_name(&given[k], &given[i]))
            return k;
    return i;
}

static fsdp_status two_values(const fsdp_option *option, const fsdp_option_given *a,
                              const fsdp_option_given *b)
{
    return fsdp_error(FSDP_ERR_INVALID,
                      "%s %.200s and %s %.200s: only one of the two would count; leave the other "
                      "out; %s",
                      a->where, a->text ? a->text : "", b->where, b->text ? b->text : "",
                      option->several);
}

/* Record that the flag `lost` does not count, because `kept` follows it. */
static fsdp_status add_replaced(fsdp_options *options, const fsdp_option_given *lost,
                                const fsdp_option_given *kept)
{
    fsdp_str line = {0};
    append_flag(&line, lost);
    fsdp_str_printf(&line, ": ");
    append_flag(&line, kept);
    fsdp_str_printf(&line, " comes later, and the last value counts");
    char *text = fsdp_options_own(options, fsdp_str_take(&line));
    if (!text || !FSDP_GROW(options->replaced, options->replaced_cap, options->n_replaced + 1))
        return fsdp_error_nomem();
    options->replaced[options->n_replaced++] = text;
    return FSDP_OK;
}

/* Compare given[i] with the last flag of the same name, which is given[last]. If the values differ,
 * add a note or, if option->several is set, return an error. */
static fsdp_status check_replaced(fsdp_options *options, const fsdp_option_given *given, size_t i,
                                  size_t last)
{
    const fsdp_option *option = &options->spec->table[given[i].index];
    if (last == i || fsdp_option_same_value(options, &given[i], &given[last]))
        return FSDP_OK;
    return option->several ? two_values(option, &given[i], &given[last])
                           : add_replaced(options, &given[i], &given[last]);
}

fsdp_status fsdp_options_check_twice(fsdp_options *options, const fsdp_option_given *given,
                                     size_t n_given)
{
    for (size_t i = 0; i < n_given; i++) {
        const fsdp_option *option = &options->spec->table[given[i].index];
        const size_t last = last_with_name(given, n_given, i);
        if (option->repeats)
            continue;
        FSDP_TRY(check_replaced(options, given, i, last));
        for (size_t k = i + 1; last == i && k < n_given; k++)
            if (given[k].index == given[i].index && last_with_name(given, n_given, k) == k &&
                !fsdp_option_same_value(options, &given[i], &given[k]))
                return contradiction(option, &given[i], &given[k]);
    }
    return FSDP_OK;
}
