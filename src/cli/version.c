/* `fsdp --version`. Libraries are shown with the version that runs, where they tell it. */
#include <dnnl.h>
#include <jansson.h>
#ifdef FSDP_HAVE_YAML
#include <yaml.h>
#endif
#ifdef FSDP_HAVE_HWLOC
#include <hwloc.h>
#endif
#ifdef FSDP_HAVE_CAIRO
#include <cairo.h>
#endif

#include <fsdp/base.h>

#include "src/cli/version.h"
#include "src/kernels/kernels.h"

static void print_optional(FILE *to, const char *name, const char *version, const char *used_for)
{
    if (version)
        fprintf(to, "  %-10s %s\n", name, version);
    else
        fprintf(to, "  %-10s not found when built: no %s\n", name, used_for);
}

static const char *yaml_version(void)
{
#ifdef FSDP_HAVE_YAML
    return yaml_get_version_string();
#else
    return NULL;
#endif
}

static const char *hwloc_version(void)
{
#ifdef FSDP_HAVE_HWLOC
    static char text[32];
    unsigned v = hwloc_get_api_version();
    snprintf(text, sizeof text, "%u.%u.%u", v >> 16, v >> 8 & 0xff, v & 0xff);
    return text;
#else
    return NULL;
#endif
}

static const char *plot_version(void)
{
#ifdef FSDP_HAVE_CAIRO
    return cairo_version_string();
#else
    return NULL;
#endif
}

void fsdp_print_version(FILE *to)
{
    fprintf(to, "fsdp %s\n", FSDP_VERSION);
#if defined(__clang__)
    fprintf(to, "compiler: clang %s\n", __clang_version__);
#else
    fprintf(to, "compiler: gcc %s\n", __VERSION__);
#endif
    fprintf(to, "cpu: ");
    for (const char *const *isa = fsdp_kernels_cpu_isas(); *isa; isa++)
        fprintf(to, "%s%s", *isa, isa[1] ? ", " : " (best first; --isa chooses)\n");
    const dnnl_version_t *dnnl = dnnl_version();
    fprintf(to, "devices: cpu, meta, fake; no cuda in this build\n");
    fprintf(to, "transports: shm, threads\nlibraries:\n");
    fprintf(to, "  %-10s %d.%d.%d\n", "oneDNN", dnnl->major, dnnl->minor, dnnl->patch);
    fprintf(to, "  %-10s %s\n", "jansson", JANSSON_VERSION);
    print_optional(to, "libyaml", yaml_version(), "--config FILE.yaml");
    print_optional(to, "hwloc", hwloc_version(), "binding by topology (equal blocks of cores)");
    print_optional(to, "cairo", plot_version(), "--plot");
}
