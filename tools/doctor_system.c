// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Will the next boot find the module?  By the files of installed kernels alone, below a root that may be another system's.
 */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "doctor.h"
#include "message.h"

static char *below(const struct findings *f, const char *directory, const char *name)
{
	return must_print("%s%s%s", f->root, directory, name);
}

static bool there(const struct findings *f, const char *directory, const char *name)
{
	char *path = below(f, directory, name);
	struct stat status;
	bool found = !stat(path, &status);

	free(path);
	return found;
}

/* Path of the module below /lib/modules/RELEASE/, by modules.dep; NULL: that kernel has none.  The caller frees it. */
static char *module_of(const struct findings *f, const char *release)
{
	char *path = must_print("%s/lib/modules/%s/modules.dep", f->root, release), *line = NULL, *found = NULL;
	FILE *file = fopen(path, "re");
	size_t room = 0;

	free(path);
	while (file && !found && getline(&line, &room, file) >= 0) {
		char *base;

		line[strcspn(line, ":\n")] = 0;
		base = strrchr(line, '/');
		base = base ? base + 1 : line;
		if (!strncmp(base, "larder.ko", strlen("larder.ko")))
			found = must_allocate(strdup(line));
	}
	free(line);
	if (file)
		fclose(file);
	return found;
}

/* How an initramfs is made anew, up to the kernel's release; NULL: nobody that is known makes one. */
static const char *find_maker(const struct findings *f)
{
	if (there(f, "/usr/share/initramfs-tools/", "hook-functions"))
		return "update-initramfs -u -k";
	return there(f, "/usr/lib/dracut/", "dracut-functions.sh") ? "dracut --force --kver" : NULL;
}

/* Made before the module was: it has none, or an older one.  False if either is not there. */
static bool image_is_older(const struct findings *f, const char *release, const char *module)
{
	char *images[] = { must_print("%s/boot/initrd.img-%s", f->root, release), must_print("%s/boot/initramfs-%s.img", f->root, release) };
	char *path = must_print("%s/lib/modules/%s/%s", f->root, release, module);
	struct stat of_image, of_module;
	bool older = false;

	for (size_t i = 0; i < sizeof(images) / sizeof(images[0]); i++) {
		older = older || (!stat(images[i], &of_image) && !stat(path, &of_module) && of_image.st_mtime < of_module.st_mtime);
		free(images[i]);
	}
	free(path);
	return older;
}

/* What modules are built with, a link to it mostly, which may lead nowhere below another root. */
static bool has_headers(const struct findings *f, const char *release)
{
	char *path = must_print("%s/lib/modules/%s/build", f->root, release);
	struct stat status;
	bool has = !lstat(path, &status);

	free(path);
	return has;
}

#define CODE(version, patchlevel, sublevel) ((version) << 16 | (patchlevel) << 8 | (sublevel))

/* As its headers have it, shifted; without these the latest that its release may stand for: Debian's 6.1.0-13 is 6.1.55. */
static unsigned code_of(const struct findings *f, const char *release)
{
	char *path = must_print("%s/lib/modules/%s/build/include/generated/uapi/linux/version.h", f->root, release), *line = NULL;
	unsigned code = 0, version, patchlevel;
	FILE *file = fopen(path, "re");
	size_t room = 0;

	free(path);
	while (file && !code && getline(&line, &room, file) >= 0)
		if (sscanf(line, "#define LINUX_VERSION_CODE %u", &code) != 1)
			code = 0;
	free(line);
	if (file)
		fclose(file);
	if (!code && sscanf(release, "%3u.%3u", &version, &patchlevel) == 2)
		code = CODE(version, patchlevel, 255);
	return code;
}

/* For larder: kernel/compat.h refuses it, and dkms.conf has DKMS pass it over. */
static bool is_too_old(const struct findings *f, const char *release)
{
	static const struct {
		unsigned from, to;
	} refused[] = {
		{ 1, CODE(6, 1, 83) },
		{ CODE(6, 2, 0), CODE(6, 6, 23) },
		{ CODE(6, 7, 0), CODE(6, 7, 11) },
		{ CODE(6, 8, 0), CODE(6, 8, 2) },
	};
	unsigned code = code_of(f, release);

	for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++)
		if (code >= refused[i].from && code < refused[i].to)
			return true;
	return false;
}

static void examine_kernel(struct findings *f, const char *release, const char *maker)
{
	char *module = module_of(f, release), *then = maker ? must_print(", then %s %s", maker, release) : must_allocate(strdup(""));

	if (!module && is_too_old(f, release))
		finding(f, FINDING_WRONG, "module", release,
			"this kernel is installed, and too old for larder, which needs 6.1.83, 6.6.23, 6.7.11, 6.8.2 or what has followed one of them in its series, or a later series: booted, it sees no volume; install a newer one, and boot this one no more");
	else if (!module && has_headers(f, release))
		finding(f, FINDING_WRONG, "module", release,
			"this kernel is installed and has no module larder: booted, it sees no volume; dkms autoinstall -k %s%s", release, then);
	else if (!module)
		finding(f, FINDING_WRONG, "module", release,
			"this kernel is installed and has no module larder, nor the headers to build it: booted, it sees no volume; install linux-headers-%s, then dkms autoinstall -k %s%s",
			release, release, then);
	else if (maker && image_is_older(f, release, module))
		finding(f, FINDING_ADVICE, "initramfs", release,
			"its initramfs is older than the module: it has another one, or none; %s %s", maker, release);
	free(then);
	free(module);
}

static void examine_hooks(struct findings *f)
{
	static const char *const parts[] = { "hooks/larder", "scripts/local-top/larder", "scripts/local-block/larder" };

	for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
		if (there(f, "/usr/share/initramfs-tools/", parts[i]) || there(f, "/etc/initramfs-tools/", parts[i]))
			continue;
		finding(f, FINDING_ADVICE, "initramfs", parts[i],
			"initramfs-tools has no such part: a root filesystem on a volume will not be found; make install-daemon, then update-initramfs -u -k of each kernel that is to boot");
	}
}

/* Its modules have a number before their name. */
static int is_ours(const struct dirent *entry)
{
	return !strcmp(entry->d_name + strspn(entry->d_name, "0123456789"), "larder");
}

static void examine_dracut(struct findings *f)
{
	char *directory = below(f, "/usr/lib/dracut/modules.d", "");
	struct dirent **entry;
	int number = scandir(directory, &entry, is_ours, alphasort);

	free(directory);
	for (int i = 0; i < number; i++)
		free(entry[i]);
	if (number >= 0)
		free(entry);
	if (!number)
		finding(f, FINDING_ADVICE, "initramfs", "dracut",
			"it has no module larder: a root filesystem on a volume will not be found; make install-daemon, dracut --regenerate-all --force");
}

static int is_kernel(const struct dirent *entry)
{
	return entry->d_name[0] != '.';
}

void examine_system(struct findings *f)
{
	char *directory = below(f, "/lib/modules", ""), *indexed;
	const char *maker = find_maker(f);
	struct dirent **kernel;
	int number = scandir(directory, &kernel, is_kernel, versionsort);

	free(directory);
	for (int i = 0; i < number; i++) {
		/* a directory without modules of its own is what a removed kernel has left */
		indexed = must_print("/lib/modules/%s/modules.builtin", kernel[i]->d_name);
		if (there(f, indexed, ""))
			examine_kernel(f, kernel[i]->d_name, maker);
		free(indexed);
		free(kernel[i]);
	}
	if (number >= 0)
		free(kernel);
	if (there(f, "/usr/share/initramfs-tools/", "hook-functions"))
		examine_hooks(f);
	if (there(f, "/usr/lib/dracut/", "dracut-functions.sh"))
		examine_dracut(f);
}
