/* Checks flags that the command line gives more than once. The same name twice is no error, and the
 * last value counts, as in argparse. This is how a script overrides its own flags: run.sh --lr 0.1
 * --lr 0.2. Two names of one option are an error if their values differ, because the user may
 * believe that they are two options. */
#include <string.h>

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

/* Return true if the flag given[i] is not followed by a flag with the same name. */
static bool counts(const fsdp_option_given *given, size_t n_given, size_t i)
{
    for (size_t k = i + 1; k < n_given; k++)
        if (given[k].index == given[i].index && has_same_name(&given[k], &given[i]))
            return false;
    return true;
}

fsdp_status fsdp_options_check_twice(fsdp_options *options, const fsdp_option_given *given,
                                     size_t n_given)
{
    for (size_t i = 0; i < n_given; i++) {
        const fsdp_option *option = &options->spec->table[given[i].index];
        if (option->repeats || !counts(given, n_given, i))
            continue;
        for (size_t k = i + 1; k < n_given; k++)
            if (given[k].index == given[i].index && counts(given, n_given, k) &&
                !fsdp_option_same_value(options, &given[i], &given[k]))
                return contradiction(option, &given[i], &given[k]);
    }
    return FSDP_OK;
}
