/* Names of parameters and modules in flags. A name is given whole or as a shell pattern: `*`
 * matches any text, dots included, `?` one character, and [0-3] one of a set. */
#pragma once
#include <fsdp/nn.h>

bool fsdp_name_matches(const char *pattern, const char *name);
/* Does the pattern match the module's path, or is it the name of its class? */
bool fsdp_module_is_meant(const char *pattern, const char *path, const fsdp_module *module);

/* The valid names, for error messages. A zero-initialised list is empty. */
typedef struct fsdp_name_list {
    char **items;
    size_t n, cap;
} fsdp_name_list;

FSDP_MUST_CHECK fsdp_status fsdp_name_list_add(fsdp_name_list *list, const char *name);
/* Add the names of all parameters in the list. */
FSDP_MUST_CHECK fsdp_status fsdp_name_list_add_parameters(fsdp_name_list *list,
                                                          const fsdp_parameter_list *parameters);
void fsdp_name_list_fini(fsdp_name_list *list);

/* FSDP_ERR_INVALID: "<flag> <word>: <why>", followed by the nearest known name, or else the first
 * one. */
FSDP_MUST_CHECK fsdp_status fsdp_refuse_name(const char *flag, const char *word, const char *why,
                                             const fsdp_name_list *known);
/* The same; the known names are the paths and classes of all modules below `root`, or of units
 * only. */
FSDP_MUST_CHECK fsdp_status fsdp_refuse_module(const char *flag, const char *word, const char *why,
                                               fsdp_module *root, bool units_only);
