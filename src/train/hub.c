/* The hub's cache: <cache>/models--org--name/snapshots/<commit>/, and refs/main, a file that holds
 * the commit of the main branch. */
#include <stdlib.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/io.h"
#include "src/base/str.h"
#include "src/train/hub.h"

static const char *env(const char *name)
{
    const char *value = getenv(name);
    return value && *value ? value : NULL;
}

/* huggingface_hub's order: HF_HUB_CACHE, HF_HOME/hub, XDG_CACHE_HOME/huggingface/hub, ~/.cache. */
static char *cache_dir(void)
{
    if (env("HF_HUB_CACHE"))
        return fsdp_strdup(env("HF_HUB_CACHE"));
    if (env("HF_HOME"))
        return fsdp_path_join(env("HF_HOME"), "hub");
    if (env("XDG_CACHE_HOME"))
        return fsdp_path_join(env("XDG_CACHE_HOME"), "huggingface/hub");
    return fsdp_path_join(env("HOME") ? env("HOME") : "", ".cache/huggingface/hub");
}

/* "org", "name", one slash at most, no "..": what may become part of a path. */
static bool is_hub_name(const char *name)
{
    const char *slash = strchr(name, '/');
    if (!*name || *name == '/' || *name == '.' || strstr(name, "..") || strstr(name, "--"))
        return false;
    return !slash || (slash[1] && !strchr(slash + 1, '/'));
}

static char *repository_dir(const char *cache, const char *org, const char *name)
{
    const char *slash = strchr(name, '/');
    if (slash)
        return fsdp_strdup_printf("%s/models--%.*s--%s", cache, (int)(slash - name), name,
                                  slash + 1);
    return fsdp_strdup_printf("%s/models--%s%s%s", cache, org, *org ? "--" : "", name);
}

static bool has_config(const char *dir)
{
    char *path = fsdp_path_join(dir, "config.json");
    bool found = path && fsdp_path_is_file(path);
    fsdp_free(path);
    return found;
}

/* The snapshot that refs/main names. */
static char *main_snapshot(const char *repository)
{
    char *ref = fsdp_path_join(repository, "refs/main"), *commit = NULL, *dir = NULL;
    if (ref && fsdp_path_is_file(ref) && fsdp_file_read(ref, 200, &commit, NULL) == FSDP_OK) {
        commit[strcspn(commit, " \r\n/")] = 0;
        if (*commit)
            dir = fsdp_strdup_printf("%s/snapshots/%s", repository, commit);
    }
    fsdp_free(ref);
    fsdp_free(commit);
    if (dir && has_config(dir))
        return dir;
    fsdp_free(dir);
    return NULL;
}

/* Without a usable refs/main: the last snapshot by name that holds a config.json. */
static char *any_snapshot(const char *repository)
{
    char *snapshots = fsdp_path_join(repository, "snapshots"), *found = NULL, **names;
    size_t count;
    if (snapshots && fsdp_path_is_directory(snapshots) &&
        fsdp_directory_list(snapshots, &names, &count) == FSDP_OK) {
        for (size_t i = count; i-- > 0 && !found;) {
            char *dir = fsdp_path_join(snapshots, names[i]);
            if (dir && has_config(dir))
                found = dir;
            else
                fsdp_free(dir);
        }
        fsdp_free(names);
    }
    fsdp_free(snapshots);
    return found;
}

fsdp_status fsdp_hub_resolve(const char *name, char **dir)
{
    if (fsdp_path_is_directory(name)) {
        *dir = fsdp_strdup(name);
        return *dir ? FSDP_OK : FSDP_ERR_NOMEM;
    }
    if (!is_hub_name(name))
        return fsdp_error(FSDP_ERR_NOT_FOUND, "model '%s': there is no such folder", name);
    /* The T5s moved: "t5-base" is found as it was called before, too. */
    static const char *const orgs[] = {"", "google-t5", "google"};
    char *cache = cache_dir(), *found = NULL;
    fsdp_str searched = {0};
    fsdp_str_printf(&searched, "./%s", name);
    for (size_t i = 0; cache && i < (strchr(name, '/') ? 1 : 3) && !found; i++) {
        char *repository = repository_dir(cache, orgs[i], name);
        if (repository) {
            fsdp_str_printf(&searched, ", %s", repository);
            found = main_snapshot(repository);
            found = found ? found : any_snapshot(repository);
        }
        fsdp_free(repository);
    }
    char *list = fsdp_str_take(&searched);
    fsdp_status status = FSDP_OK;
    if (found)
        *dir = found;
    else if (!cache || !list)
        status = FSDP_ERR_NOMEM;
    else
        status = fsdp_error(FSDP_ERR_NOT_FOUND,
                            "model '%s' is neither a folder nor in the hub's cache; searched: %s",
                            name, list);
    fsdp_free(list);
    fsdp_free(cache);
    return status;
}
