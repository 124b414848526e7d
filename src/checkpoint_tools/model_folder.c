/* See model_folder.h. */
#include "src/checkpoint_tools/model_folder.h"

#include "src/base/io.h"
#include "src/hf/stale_files.h"
#include "src/pretrained/model.h"

fsdp_status fsdp_write_model_folder(const char *to, bool overwrite,
                                    fsdp_status (*write)(void *arg, const char *dir), void *arg)
{
    fsdp_atomic_directory *target;
    FSDP_TRY(fsdp_model_check_folder(to));
    FSDP_TRY(fsdp_atomic_directory_begin(
        to, overwrite ? FSDP_EXISTING_UPDATE : FSDP_EXISTING_REFUSE, &target));
    fsdp_atomic_directory_drop(target, fsdp_is_stale_model_file, NULL);
    const fsdp_status status = write(arg, fsdp_atomic_directory_path(target));
    if (status != FSDP_OK) {
        fsdp_atomic_directory_discard(target);
        return status;
    }
    return fsdp_atomic_directory_commit(target);
}
