/* Filters and tests of templates. filters.c has the tables, the tests, and the filters that need
 * another filter or test by its name. All other filters are in filters_text.c, filters_list.c and
 * filters_number.c. */
#pragma once
#include "src/text/jinja/arguments.h"
#include "src/text/jinja/value.h"

typedef fsdp_status jinja_filter_fn(struct jinja_machine *machine, jinja_value value,
                                    const jinja_args *args, jinja_value *out);

typedef struct jinja_filter {
    const char *name;
    jinja_filter_fn *call; /* NULL: Jinja2 has this filter, but this library does not */
    bool takes_safe;       /* true: the filter accepts texts that the filter `safe` has marked */
} jinja_filter;

/* Return the filter with this name, or NULL if Jinja2 has no such filter. */
const jinja_filter *fsdp_jinja_find_filter(const jinja_string *name);
/* Apply a filter to `value`. It is an error if this library does not have the filter. */
FSDP_MUST_CHECK fsdp_status fsdp_jinja_call_filter(struct jinja_machine *machine,
                                                   const jinja_filter *filter, jinja_value value,
                                                   const jinja_args *args, jinja_value *out);

typedef fsdp_status jinja_test_fn(struct jinja_machine *machine, jinja_value value,
                                  const jinja_args *args, bool *out);

typedef struct jinja_test {
    const char *name;
    jinja_test_fn *call; /* NULL: Jinja2 has this test, but this library does not */
} jinja_test;

/* Return the test with this name, or NULL if Jinja2 has no such test. */
const jinja_test *fsdp_jinja_find_test(const jinja_string *name);
FSDP_MUST_CHECK fsdp_status fsdp_jinja_call_test(struct jinja_machine *machine,
                                                 const jinja_test *test, jinja_value value,
                                                 const jinja_args *args, bool *out);

/* ---- implementations of filters, for the table in filters.c ---- */

jinja_filter_fn fsdp_jinja_filter_capitalize, fsdp_jinja_filter_center, fsdp_jinja_filter_escape,
    fsdp_jinja_filter_indent, fsdp_jinja_filter_join, fsdp_jinja_filter_lower,
    fsdp_jinja_filter_replace, fsdp_jinja_filter_safe, fsdp_jinja_filter_string,
    fsdp_jinja_filter_title, fsdp_jinja_filter_tojson, fsdp_jinja_filter_trim,
    fsdp_jinja_filter_truncate, fsdp_jinja_filter_upper, fsdp_jinja_filter_urlencode,
    fsdp_jinja_filter_wordcount;
jinja_filter_fn fsdp_jinja_filter_abs, fsdp_jinja_filter_float, fsdp_jinja_filter_int,
    fsdp_jinja_filter_round;
jinja_filter_fn fsdp_jinja_filter_batch, fsdp_jinja_filter_default, fsdp_jinja_filter_dictsort,
    fsdp_jinja_filter_first, fsdp_jinja_filter_items, fsdp_jinja_filter_last,
    fsdp_jinja_filter_length, fsdp_jinja_filter_list, fsdp_jinja_filter_max, fsdp_jinja_filter_min,
    fsdp_jinja_filter_reverse, fsdp_jinja_filter_slice, fsdp_jinja_filter_sort,
    fsdp_jinja_filter_sum, fsdp_jinja_filter_unique;
