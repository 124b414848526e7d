/* Compares names in flags with the names of a model's parameters and modules. A flag contains a
 * full name or a shell pattern. In a pattern, `*` matches any text, including dots, and `?` matches
 * any one character. [0-3] matches one character from a set. */
#pragma once
#include <fsdp/nn.h>

bool fsdp_name_matches(const char *pattern, const char *name);
/* Return true if `pattern` matches the module's path, which is `path`, or is the name of the
 * module's class. */
bool fsdp_module_matches(const char *pattern, const char *path, const fsdp_module *module);

/* A list of the valid names, for error messages. A zero-initialized list is empty. */
typedef struct fsdp_name_list {
    char **items;
    size_t n, cap;
} fsdp_name_list;

FSDP_MUST_CHECK fsdp_status fsdp_name_list_add(fsdp_name_list *list, const char *name);
/* Add the names of all `parameters` to `list`. */
FSDP_MUST_CHECK fsdp_status fsdp_name_list_add_parameters(fsdp_name_list *list,
                                                          const fsdp_parameter_list *parameters);
void fsdp_name_list_fini(fsdp_name_list *list);

/* Return FSDP_ERR_INVALID with the message "<flag> <word>: <why>" and a hint. The hint is the name
 * in `known` that is most similar to `word`. If none is similar, it is the first name in
 * `known`. */
FSDP_MUST_CHECK fsdp_status fsdp_refuse_name(const char *flag, const char *word, const char *why,
                                             const fsdp_name_list *known);
/* Call fsdp_refuse_name(). The known names are the paths and classes of `root` and all modules
 * below it. If `units_only` is true, only modules that are units count. */
FSDP_MUST_CHECK fsdp_status fsdp_refuse_module(const char *flag, const char *word, const char *why,
                                               fsdp_module *root, bool units_only);
