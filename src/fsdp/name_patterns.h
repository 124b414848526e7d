/* Names of parameters and modules as flags give them: whole, or as a pattern of the shell, in which
 * `*` stands for any text, dots included, `?` for a character and [0-3] for one of several. */
#pragma once
#include <fsdp/nn.h>

bool fsdp_name_matches(const char *pattern, const char *name);
/* Is the module of this path meant: by its path or its class? */
bool fsdp_module_is_meant(const char *pattern, const char *path, const fsdp_module *module);

/* Names that could have been given; zero-initialised: none. */
typedef struct fsdp_name_list {
    char **items;
    size_t n, cap;
} fsdp_name_list;

FSDP_MUST_CHECK fsdp_status fsdp_name_list_add(fsdp_name_list *list, const char *name);
/* All names of all parameters. */
FSDP_MUST_CHECK fsdp_status fsdp_name_list_add_parameters(fsdp_name_list *list,
                                                          const fsdp_parameter_list *parameters);
void fsdp_name_list_fini(fsdp_name_list *list);

/* FSDP_ERR_INVALID: "<flag> <word>: <why>", with the nearest of the names, or else the first. */
FSDP_MUST_CHECK fsdp_status fsdp_refuse_name(const char *flag, const char *word, const char *why,
                                             const fsdp_name_list *known);
/* The same with the paths and classes of all modules of a tree, or of its units. */
FSDP_MUST_CHECK fsdp_status fsdp_refuse_module(const char *flag, const char *word, const char *why,
                                               fsdp_module *root, bool units_only);
