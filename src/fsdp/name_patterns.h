/* Matches the names of parameters and modules that are given in flags. A flag has a full name or a
 * shell pattern, in which `*` matches any text, including dots, `?` matches any one character, and
 * [0-3] matches one character from a set. */
#pragma once
#include <fsdp/nn.h>

bool fsdp_name_matches(const char *pattern, const char *name);
/* Does the pattern match the module's path, or is it the name of its class? */
bool fsdp_module_matches(const char *pattern, const char *path, const fsdp_module *module);

/* A list of the valid names, for error messages. A zero-initialised list is empty. */
typedef struct fsdp_name_list {
    char **items;
    size_t n, cap;
} fsdp_name_list;

FSDP_MUST_CHECK fsdp_status fsdp_name_list_add(fsdp_name_list *list, const char *name);
/* Add the names of all `parameters` to `list`. */
FSDP_MUST_CHECK fsdp_status fsdp_name_list_add_parameters(fsdp_name_list *list,
                                                          const fsdp_parameter_list *parameters);
void fsdp_name_list_fini(fsdp_name_list *list);

/* Return FSDP_ERR_INVALID with the message "<flag> <word>: <why>", followed by the name in `known`
 * that is nearest to `word`, or by the first name in `known` if none is near. */
FSDP_MUST_CHECK fsdp_status fsdp_refuse_name(const char *flag, const char *word, const char *why,
                                             const fsdp_name_list *known);
/* Call fsdp_refuse_name() with the paths and classes of `root` and all modules below it as known
 * names; with `units_only`, only with those of units. */
FSDP_MUST_CHECK fsdp_status fsdp_refuse_module(const char *flag, const char *word, const char *why,
                                               fsdp_module *root, bool units_only);
