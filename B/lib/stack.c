// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The description of a stack: a head of 16 bytes (magic, version, what it is of, length), and so many bytes of JSON.
 *
 * What is read comes from a disk that anybody may have written: the length is checked before it is used, JSON goes no deeper than
 * this format does, and each value must be of its type, in its bounds, and printable.  A version or a key that is not known is
 * refused: a newer larder may mean by it what this one would break.
 */
#include <endian.h>
#include <fcntl.h>
#include <inttypes.h>
#include <json-c/json.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <uuid/uuid.h>

#include "message.h"
#include "stack.h"

#define STACK_MAGIC   0x4b54534cu /* "LSTK" */
#define STACK_VERSION 1u
#define STACK_DEPTH   4
#define GENERATION_MAX ((uint64_t)INT64_MAX) /* as JSON has numbers */
#define BRIEF_TEXT    (UUID_TEXT + LARDER_LABEL_SIZE + 1 + 24) /* "UUID NAME GENERATION" */

#define SNAPSHOT_TEXT (24 + 12 + SNAPSHOT_NAME_MAX) /* "SERIAL STATE NAME" */

enum stack_of {
	OF_VOLUME = 1,
	OF_CACHE = 2,
};

struct head {
	uint32_t magic, version, of, length;
};

#define TEXT_MAX (LARDER_STACK_SIZE - sizeof(struct head))

static const char *const states[] = { "ready", "creating", "removing" };
static const char *const snapshot_states[] = { "ready", "creating", "removing", "lost" };

const char *stack_state_text(enum stack_state state)
{
	return states[state];
}

const char *snapshot_state_text(enum snapshot_state state)
{
	return snapshot_states[state];
}

static bool one_of(const char *word, const char *const *words, size_t number)
{
	for (size_t i = 0; i < number; i++)
		if (!strcmp(words[i], word))
			return true;
	return false;
}

bool stack_raid_valid(const char *raid)
{
	static const char *const levels[] = { "0", "1", "10", "5", "6" };

	return one_of(raid, levels, sizeof(levels) / sizeof(levels[0]));
}

bool stack_integrity_valid(const char *integrity)
{
	return !strcmp(integrity, "crc32c");
}

bool stack_fs_valid(const char *fs)
{
	static const char *const kinds[] = { "ext4", "xfs", "btrfs" };

	return one_of(fs, kinds, sizeof(kinds) / sizeof(kinds[0]));
}

bool stack_aead_valid(const char *aead)
{
	static const char *const ciphers[] = { "chacha20-poly1305", "aes-gcm", "aes-xts-hmac" };

	return one_of(aead, ciphers, sizeof(ciphers) / sizeof(ciphers[0]));
}

static bool has_control(const char *text)
{
	for (; *text; text++)
		if ((unsigned char)*text < 0x20 || *text == 0x7f)
			return true;
	return false;
}

bool stack_text_valid(const char *text, bool path)
{
	return strlen(text) < STACK_PATH_MAX && (!path || text[0] == '/') && !has_control(text);
}

bool stack_class_valid(const char *class)
{
	return *class && strlen(class) < STACK_CLASS_MAX && !has_control(class) && !strpbrk(class, " \\");
}

/* As LVM has it (lvm(8), VALID NAMES). */
bool space_name_valid(const char *group)
{
	size_t length = strlen(group);

	return length && length < SPACE_NAME_MAX && *group != '-' && strcmp(group, ".") && strcmp(group, "..") &&
	       strspn(group, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+._-") == length;
}

bool device_label_valid(const char *label)
{
	bool begins = true;
	size_t i;

	for (i = 0; label[i]; i++) {
		bool plain = (label[i] >= 'a' && label[i] <= 'z') || (label[i] >= 'A' && label[i] <= 'Z') || (label[i] >= '0' && label[i] <= '9');

		if (!plain && (begins || !strchr("._-", label[i])))
			return false;
		begins = label[i] == '.';
	}
	return !begins && i < DEVICE_LABEL_MAX && strcmp(label, "none") && strcmp(label, "backing");
}

bool device_label_in(const char *label, const char *target)
{
	size_t length = strlen(target);

	return length && !strncmp(label, target, length) && (!label[length] || label[length] == '.');
}

void stack_part(const struct stack *stack, const char *part, uint8_t uuid[16])
{
	uuid_generate_sha1(uuid, stack->uuid, part, strlen(part));
}

/* ------------------------------------------------------------------ snapshots */

bool snapshot_name_valid(const char *name)
{
	return name_valid(name) && strlen(name) < SNAPSHOT_NAME_MAX && !strchr(name, '@');
}

struct stack_snapshot *stack_snapshot_find(struct stack *stack, const char *name)
{
	for (uint32_t i = 0; i < stack->snapshots; i++)
		if (!strcmp(stack->snapshot[i].name, name))
			return &stack->snapshot[i];
	return NULL;
}

void stack_snapshot_uuid(const struct stack *stack, const struct stack_snapshot *snapshot, uint8_t uuid[16])
{
	char part[40];

	snprintf(part, sizeof(part), "snapshot %" PRIu64, snapshot->serial);
	stack_part(stack, part, uuid);
}

bool stack_snapshot_needed(const struct stack *stack)
{
	for (uint32_t i = 0; i < stack->snapshots; i++)
		if (stack->snapshot[i].state == SNAPSHOT_READY)
			return true;
	return false;
}

void stack_snapshot_forget(struct stack *stack, const char *name)
{
	struct stack_snapshot *gone = stack_snapshot_find(stack, name), *last = &stack->snapshot[stack->snapshots];

	if (!gone)
		return;
	for (; gone + 1 < last; gone++)
		*gone = gone[1];
	*gone = (struct stack_snapshot){ 0 };
	stack->snapshots--;
}

/* "data-12": 12, and *stem the length of "data"; 0: it has none. */
static unsigned name_number(const char *name, size_t *stem)
{
	const char *dash = strrchr(name, '-'), *at = dash ? dash + 1 : "";
	unsigned number = 0;

	if (*at == '0')
		return 0;
	for (; *at >= '0' && *at <= '9' && number <= STACK_LIST_MAX; at++)
		number = number * 10 + (unsigned)(*at - '0');
	if (*at || !number || number > STACK_LIST_MAX || dash == name)
		return 0;
	*stem = (size_t)(dash - name);
	return number;
}

bool stack_is_one_of(const struct stack *stack, const char *name)
{
	size_t stem;

	return name_number(stack->name, &stem) && stem == strlen(name) && !strncmp(stack->name, name, stem);
}

/* Has each of those behind it a name, and is it of one disk that the name of its mark tells? */
static bool next_fits(const struct stack *stack)
{
	char last[24];
	size_t stem;
	unsigned number = name_number(stack->name, &stem);

	if (!number || number + stack->next > STACK_LIST_MAX || *stack->raid || *stack->fs || stack->state == STACK_READY)
		return false;
	return stem + (size_t)snprintf(last, sizeof(last), "-%u", number + stack->next) <= LARDER_LABEL_SIZE;
}

bool stack_next(const struct stack *stack, struct stack *next)
{
	struct stack made = *stack;
	char *dash = strrchr(made.name, '-');
	size_t stem;

	if (!stack->next || !next_fits(stack))
		return false;
	stack_part(stack, "next", made.uuid);
	made.generation = 0;
	made.state = STACK_CREATING;
	made.step = STEP_DISKS;
	made.wiped = 0;
	made.next--;
	snprintf(dash, sizeof(made.name) - (size_t)(dash - made.name), "-%u", name_number(stack->name, &stem) + 1);
	*next = made;
	return true;
}

void stack_host(uint8_t host[16])
{
	const char *given = getenv("LARDER_MACHINE_ID");
	char text[33] = "", spelled[UUID_TEXT];
	uint8_t machine[16];
	int file = open(given ? given : "/etc/machine-id", O_RDONLY | O_CLOEXEC);
	bool there = file >= 0 && read(file, text, 32) == 32;

	if (file >= 0)
		close(file);
	memset(host, 0, 16);
	snprintf(spelled, sizeof(spelled), "%.8s-%.4s-%.4s-%.4s-%.12s", text, text + 8, text + 12, text + 16, text + 20);
	/* not the number itself: machine-id(5) asks for that */
	if (there && !uuid_parse(spelled, machine))
		uuid_generate_sha1(host, machine, "larder", strlen("larder"));
}

bool stack_host_is_foreign(const uint8_t host[16])
{
	uint8_t here[16];

	stack_host(here);
	return !uuid_is_null(here) && !uuid_is_null(host) && memcmp(here, host, 16);
}

bool stack_host_is_unknown(const uint8_t host[16])
{
	uint8_t here[16];

	stack_host(here);
	return uuid_is_null(here) && !uuid_is_null(host);
}

bool stack_is_foreign(const struct stack *stack)
{
	return stack_host_is_foreign(stack->host);
}

/* ------------------------------------------------------------------ encode */

static void put_text(struct json_object *o, const char *key, const char *text)
{
	if (*text)
		json_object_object_add(o, key, json_object_new_string(text));
}

static void put_uuid(struct json_object *o, const char *key, const uint8_t uuid[16])
{
	char text[UUID_TEXT];

	if (!uuid_is_null(uuid))
		put_text(o, key, uuid_text(uuid, text));
}

static void put_number(struct json_object *o, const char *key, uint64_t number)
{
	if (number)
		json_object_object_add(o, key, json_object_new_int64((int64_t)number));
}

/* "SERIAL STATE NAME" each */
static struct json_object *snapshots_to_json(const struct stack *s)
{
	struct json_object *list = must_allocate(json_object_new_array());
	char word[SNAPSHOT_TEXT];

	for (uint32_t i = 0; i < s->snapshots; i++) {
		const struct stack_snapshot *one = &s->snapshot[i];

		snprintf(word, sizeof(word), "%" PRIu64 " %s %s", one->serial, snapshot_states[one->state], one->name);
		json_object_array_add(list, json_object_new_string(word));
	}
	return list;
}

static struct json_object *to_json(const struct stack *s)
{
	struct json_object *o = must_allocate(json_object_new_object());
	uint8_t part[16];

	put_text(o, "name", s->name);
	put_uuid(o, "uuid", s->uuid);
	put_number(o, "generation", s->generation);
	put_uuid(o, "host", s->host);
	put_text(o, "state", states[s->state]);
	put_number(o, "step", s->step);
	put_text(o, "raid", s->raid);
	put_number(o, "legs", s->legs);
	put_text(o, "integrity", s->integrity);
	put_number(o, "spares", s->spares);
	if (*s->raid) {
		stack_part(s, "md", part);
		put_uuid(o, "md", part);
	}
	put_uuid(o, "cache", s->cache);
	put_number(o, "own_cache", s->own_cache);
	put_number(o, "next", s->next);
	put_number(o, "size", s->size);
	put_text(o, "mode", s->mode);
	put_text(o, "class", s->class);
	put_text(o, "options", s->options);
	stack_part(s, "volume", part);
	put_uuid(o, "volume", part);
	if (s->encrypted) {
		stack_part(s, "crypt", part);
		put_uuid(o, "crypt", part);
	}
	put_text(o, "aead", s->aead);
	put_number(o, "wiped", s->wiped);
	put_text(o, "keyfile", s->keyfile);
	put_text(o, "token", s->token);
	put_text(o, "fs", s->fs);
	if (*s->fs) {
		stack_part(s, "fs", part);
		put_uuid(o, "fs_uuid", part);
	}
	put_text(o, "label", s->label);
	put_text(o, "mkfs", s->mkfs);
	put_text(o, "mount", s->mount);
	if (s->snapshots)
		json_object_object_add(o, "snapshots", snapshots_to_json(s));
	put_text(o, "space", s->space);
	put_text(o, "disks", s->disks);
	return o;
}

uint64_t stack_raise(uint64_t generation, uint64_t changes)
{
	return generation > GENERATION_MAX - changes ? GENERATION_MAX : generation + changes;
}

static const char *encode(struct json_object *o, enum stack_of of, uint8_t field[static LARDER_STACK_SIZE])
{
	const char *text = must_allocate(
		(void *)json_object_to_json_string_ext(o, JSON_C_TO_STRING_PLAIN | JSON_C_TO_STRING_NOSLASHESCAPE));
	size_t length = strlen(text);
	struct head head = { htole32(STACK_MAGIC), htole32(STACK_VERSION), htole32(of), htole32((uint32_t)length) };
	bool fits = length <= TEXT_MAX;

	memset(field, 0, LARDER_STACK_SIZE);
	if (fits) {
		memcpy(field, &head, sizeof(head));
		memcpy(field + sizeof(head), text, length);
	}
	json_object_put(o);
	return fits ? NULL : "the description does not fit into 2 KiB";
}

const char *stack_encode(const struct stack *stack, uint8_t field[static LARDER_STACK_SIZE])
{
	return encode(to_json(stack), OF_VOLUME, field);
}

/* Up to the last place that has one; "-" is none. */
static void put_labels(struct json_object *o, const struct stack_list *list)
{
	unsigned number = LARDER_MAX_DEVICES;
	struct json_object *labels;

	while (number && !*list->label[number - 1])
		number--;
	if (!number)
		return;
	labels = must_allocate(json_object_new_array());
	for (unsigned i = 0; i < number; i++)
		json_object_array_add(labels, json_object_new_string(*list->label[i] ? list->label[i] : "-"));
	json_object_object_add(o, "labels", labels);
}

static bool says_more(const struct stack_list *list)
{
	if (*list->options)
		return true;
	for (unsigned i = 0; i < LARDER_MAX_DEVICES; i++)
		if (*list->label[i])
			return true;
	return false;
}

static struct json_object *list_to_json(const struct stack_list *list, bool generations)
{
	struct json_object *o = must_allocate(json_object_new_object()), *ready = must_allocate(json_object_new_array()),
			   *changing = must_allocate(json_object_new_array());

	for (size_t i = 0; i < list->number; i++) {
		const struct stack *s = &list->stack[i];
		char text[UUID_TEXT], word[BRIEF_TEXT], generation[24] = "";

		if (generations && s->generation)
			snprintf(generation, sizeof(generation), " %" PRIu64, s->generation);
		if (s->state == STACK_READY) {
			snprintf(word, sizeof(word), "%s %s%s", uuid_text(s->uuid, text), s->name, generation);
			json_object_array_add(ready, json_object_new_string(word));
		} else {
			json_object_array_add(changing, to_json(s));
		}
	}
	json_object_object_add(o, "ready", ready);
	json_object_object_add(o, "changing", changing);
	put_labels(o, list);
	put_text(o, "options", list->options);
	put_uuid(o, "host", list->host);
	return o;
}

const char *stack_list_encode(const struct stack_list *list, uint8_t field[static LARDER_STACK_SIZE])
{
	memset(field, 0, LARDER_STACK_SIZE);
	if (!list->number && !says_more(list))
		return NULL;
	/* a list that is full does without what only helps to notice a mistake */
	return encode(list_to_json(list, true), OF_CACHE, field) ? encode(list_to_json(list, false), OF_CACHE, field) : NULL;
}

/* ------------------------------------------------------------------ decode */

/* *there: it is not empty.  NULL with *why NULL: it is empty. */
static struct json_object *decode(const uint8_t *field, enum stack_of of, bool *there, const char **why)
{
	struct json_tokener *tokener;
	struct json_object *o = NULL;
	struct head head;
	uint32_t length;

	memcpy(&head, field, sizeof(head));
	length = le32toh(head.length);
	*there = false;
	*why = NULL;
	for (size_t i = 0; i < LARDER_STACK_SIZE && !*there; i++)
		*there = field[i];
	if (!*there)
		return NULL;
	*why = "stack: is no description that larder knows";
	if (le32toh(head.magic) != STACK_MAGIC)
		return NULL;
	*why = "stack: is of another version; use a newer larder";
	if (le32toh(head.version) != STACK_VERSION)
		return NULL;
	*why = "stack: its head is damaged";
	if (le32toh(head.of) != (uint32_t)of || !length || length > TEXT_MAX)
		return NULL;
	tokener = must_allocate(json_tokener_new_ex(STACK_DEPTH));
	json_tokener_set_flags(tokener, JSON_TOKENER_STRICT);
	o = json_tokener_parse_ex(tokener, (const char *)field + sizeof(head), (int)length);
	*why = o && json_object_is_type(o, json_type_object) ? NULL : "stack: is not the JSON it says it is";
	json_tokener_free(tokener);
	if (!*why)
		return o;
	json_object_put(o);
	return NULL;
}

/* Text of at most size - 1 bytes, without zeroes and control characters in it. */
static bool get_text(struct json_object *o, char *to, size_t size)
{
	size_t length;

	if (!json_object_is_type(o, json_type_string))
		return false;
	length = (size_t)json_object_get_string_len(o);
	if (!length || length >= size || strlen(json_object_get_string(o)) != length)
		return false;
	memcpy(to, json_object_get_string(o), length + 1);
	return !has_control(to);
}

static bool get_uuid(struct json_object *o, uint8_t uuid[16])
{
	char text[UUID_TEXT];

	return get_text(o, text, sizeof(text)) && !uuid_parse(text, uuid) && !uuid_is_null(uuid);
}

static bool get_number(struct json_object *o, uint64_t max, uint64_t *number)
{
	int64_t value;

	if (!json_object_is_type(o, json_type_int))
		return false;
	value = json_object_get_int64(o);
	*number = (uint64_t)value;
	return value >= 0 && *number <= max;
}

static bool get_state(struct json_object *o, enum stack_state *state)
{
	char text[16];

	if (!get_text(o, text, sizeof(text)))
		return false;
	for (size_t i = 0; i < sizeof(states) / sizeof(states[0]); i++)
		if (!strcmp(states[i], text)) {
			*state = (enum stack_state)i;
			return true;
		}
	return false;
}

static bool get_snapshot(struct json_object *o, struct stack_snapshot *one)
{
	char text[SNAPSHOT_TEXT], state[12], name[SNAPSHOT_NAME_MAX];
	int length = 0;

	if (!get_text(o, text, sizeof(text)) || *text < '1' || *text > '9' ||
	    sscanf(text, "%" SCNu64 " %11[a-z] %31s%n", &one->serial, state, name, &length) != 3 || text[length] ||
	    one->serial > GENERATION_MAX || !snapshot_name_valid(name))
		return false;
	strcpy(one->name, name);
	for (size_t i = 0; i < sizeof(snapshot_states) / sizeof(snapshot_states[0]); i++)
		if (!strcmp(snapshot_states[i], state)) {
			one->state = (enum snapshot_state)i;
			return true;
		}
	return false;
}

/* Each name, and each serial number, once. */
static bool get_snapshots(struct json_object *o, struct stack *s)
{
	s->snapshots = 0;
	if (!json_object_is_type(o, json_type_array) || json_object_array_length(o) > SNAPSHOTS_MAX)
		return false;
	for (size_t i = 0; i < json_object_array_length(o); i++) {
		struct stack_snapshot *one = &s->snapshot[i];

		if (!get_snapshot(json_object_array_get_idx(o, i), one))
			return false;
		for (uint32_t k = 0; k < s->snapshots; k++)
			if (s->snapshot[k].serial == one->serial || !strcmp(s->snapshot[k].name, one->name))
				return false;
		s->snapshots++;
	}
	return s->snapshots;
}

static bool get_options(struct json_object *o, char options[static STORED_OPTIONS_MAX])
{
	return get_text(o, options, STORED_OPTIONS_MAX) && *options && stored_options_valid(options);
}

/* One key of a description; false: it is not known, or its value is not what it may be. */
static bool get_key(struct stack *s, const char *key, struct json_object *o)
{
	uint64_t number = 0;
	uint8_t part[16];
	uint32_t mode;

	if (!strcmp(key, "name"))
		return get_text(o, s->name, sizeof(s->name)) && name_valid(s->name);
	if (!strcmp(key, "uuid"))
		return get_uuid(o, s->uuid);
	if (!strcmp(key, "generation"))
		return get_number(o, GENERATION_MAX, &s->generation);
	if (!strcmp(key, "host"))
		return get_uuid(o, s->host);
	if (!strcmp(key, "state"))
		return get_state(o, &s->state);
	if (!strcmp(key, "step")) {
		bool good = get_number(o, NR_STEPS - 1, &number);

		s->step = good ? (enum stack_step)number : STEP_NONE;
		return good;
	}
	if (!strcmp(key, "raid"))
		return get_text(o, s->raid, sizeof(s->raid)) && stack_raid_valid(s->raid);
	if (!strcmp(key, "legs")) {
		bool good = get_number(o, 64, &number);

		s->legs = (uint32_t)number;
		return good && number;
	}
	if (!strcmp(key, "integrity"))
		return get_text(o, s->integrity, sizeof(s->integrity)) && stack_integrity_valid(s->integrity);
	if (!strcmp(key, "spares"))
		return get_number(o, 63, &number) && (s->spares = (uint32_t)number, true);
	if (!strcmp(key, "md") || !strcmp(key, "volume") || !strcmp(key, "fs_uuid"))
		return get_uuid(o, part);
	if (!strcmp(key, "cache"))
		return get_uuid(o, s->cache);
	if (!strcmp(key, "own_cache"))
		return get_number(o, OWN_TOGETHER, &number) && (s->own_cache = (enum stack_own)number, true);
	if (!strcmp(key, "next"))
		return get_number(o, STACK_LIST_MAX - 1, &number) && (s->next = (uint32_t)number, true);
	if (!strcmp(key, "size"))
		return get_number(o, INT64_MAX, &s->size) && s->size && s->size % LARDER_SLOT_SIZE == 0;
	if (!strcmp(key, "mode"))
		return get_text(o, s->mode, sizeof(s->mode)) && mode_parse(s->mode, &mode);
	if (!strcmp(key, "class"))
		return get_text(o, s->class, sizeof(s->class)) && stack_class_valid(s->class);
	if (!strcmp(key, "options"))
		return get_options(o, s->options);
	if (!strcmp(key, "crypt"))
		return get_uuid(o, part) && (s->encrypted = true);
	if (!strcmp(key, "aead"))
		return get_text(o, s->aead, sizeof(s->aead)) && stack_aead_valid(s->aead);
	if (!strcmp(key, "wiped"))
		return get_number(o, INT64_MAX, &s->wiped);
	if (!strcmp(key, "keyfile"))
		return get_text(o, s->keyfile, sizeof(s->keyfile)) && stack_text_valid(s->keyfile, true);
	if (!strcmp(key, "token"))
		return get_text(o, s->token, sizeof(s->token)) && *s->token;
	if (!strcmp(key, "fs"))
		return get_text(o, s->fs, sizeof(s->fs)) && stack_fs_valid(s->fs);
	if (!strcmp(key, "label"))
		return get_text(o, s->label, sizeof(s->label)) && label_valid(s->label);
	if (!strcmp(key, "mkfs"))
		return get_text(o, s->mkfs, sizeof(s->mkfs));
	if (!strcmp(key, "mount"))
		return get_text(o, s->mount, sizeof(s->mount)) && stack_text_valid(s->mount, true);
	if (!strcmp(key, "snapshots"))
		return get_snapshots(o, s);
	if (!strcmp(key, "space"))
		return get_text(o, s->space, sizeof(s->space)) && space_name_valid(s->space);
	if (!strcmp(key, "disks"))
		return get_text(o, s->disks, sizeof(s->disks)) && device_label_valid(s->disks);
	return false;
}

/* Are the UUIDs of the parts those that follow from the stack's? */
static bool parts_match(const struct stack *s, struct json_object *o)
{
	static const char *const parts[][2] = { { "md", "md" }, { "volume", "volume" }, { "crypt", "crypt" }, { "fs_uuid", "fs" } };
	struct json_object *value;

	for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
		uint8_t expected[16], part[16];

		stack_part(s, parts[i][1], expected);
		if (json_object_object_get_ex(o, parts[i][0], &value) &&
		    (!get_uuid(value, part) || memcmp(part, expected, sizeof(part))))
			return false;
	}
	return true;
}

static const char *from_json(struct json_object *o, struct stack *s)
{
	memset(s, 0, sizeof(*s));
	if (!json_object_is_type(o, json_type_object))
		return "stack: is not an object";
	json_object_object_foreach(o, key, value)
		if (!get_key(s, key, value))
			return "stack: has a key that is not known, or a value out of bounds";
	if (!*s->name || uuid_is_null(s->uuid) || uuid_is_null(s->cache) || !s->legs || !*s->mode)
		return "stack: lacks name, uuid, cache, legs or mode";
	if ((!*s->raid && s->legs != 1) || (*s->keyfile && !s->encrypted) || (*s->mount && !*s->fs) || (*s->aead && !s->encrypted) ||
	    (s->wiped && !*s->aead) || (*s->token && (!s->encrypted || s->state == STACK_READY)) ||
	    (*s->integrity && (!*s->raid || !strcmp(s->raid, "0"))) || (s->next && !next_fits(s)) ||
	    (s->snapshots && s->state != STACK_READY) || (s->size && s->state == STACK_READY) ||
	    (s->spares && (!*s->raid || !strcmp(s->raid, "0") || s->legs + s->spares > 64 || s->state == STACK_READY)))
		return "stack: contradicts itself";
	return parts_match(s, o) ? NULL : "stack: the UUID of a part is not the stack's";
}

const char *stack_decode(const uint8_t field[static LARDER_STACK_SIZE], struct stack *stack, bool *there)
{
	const char *why;
	struct json_object *o = decode(field, OF_VOLUME, there, &why);

	memset(stack, 0, sizeof(*stack));
	if (!o)
		return why;
	why = from_json(o, stack);
	json_object_put(o);
	return why;
}

/* "UUID NAME", "UUID NAME GENERATION" */
static bool get_brief(struct json_object *o, struct stack *s)
{
	char text[BRIEF_TEXT], *name = text + UUID_TEXT, *generation, *end = "";

	memset(s, 0, sizeof(*s));
	if (!get_text(o, text, sizeof(text)) || strlen(text) < UUID_TEXT || text[UUID_TEXT - 1] != ' ')
		return false;
	text[UUID_TEXT - 1] = 0;
	generation = strchr(name, ' ');
	if (generation) {
		*generation++ = 0;
		if (*generation < '1' || *generation > '9')
			return false;
		s->generation = strtoull(generation, &end, 10);
	}
	if (strlen(name) >= sizeof(s->name) || *end || s->generation > GENERATION_MAX)
		return false;
	strcpy(s->name, name);
	return !uuid_parse(text, s->uuid) && !uuid_is_null(s->uuid) && name_valid(s->name);
}

static bool get_labels(struct json_object *o, struct stack_list *list)
{
	if (!json_object_is_type(o, json_type_array) || json_object_array_length(o) > LARDER_MAX_DEVICES)
		return false;
	for (size_t i = 0; i < json_object_array_length(o); i++) {
		char *label = list->label[i];

		if (!get_text(json_object_array_get_idx(o, i), label, DEVICE_LABEL_MAX))
			return false;
		if (!strcmp(label, "-"))
			*label = 0;
		else if (!device_label_valid(label))
			return false;
	}
	return true;
}

static const char *list_from_json(struct json_object *o, struct stack_list *list)
{
	json_object_object_foreach(o, key, value)
	{
		bool brief = !strcmp(key, "ready");

		if ((!strcmp(key, "host") && get_uuid(value, list->host)) || (!strcmp(key, "labels") && get_labels(value, list)) ||
		    (!strcmp(key, "options") && get_options(value, list->options)))
			continue;
		if ((!brief && strcmp(key, "changing")) || !json_object_is_type(value, json_type_array))
			return "stack: has a key that is not known, or a value out of bounds";
		for (size_t i = 0; i < json_object_array_length(value); i++) {
			struct json_object *one = json_object_array_get_idx(value, i);
			struct stack *s = &list->stack[list->number];
			const char *why;

			if (list->number == STACK_LIST_MAX)
				return "stack: too many stacks";
			why = brief ? (get_brief(one, s) ? NULL : "stack: an entry is not UUID, name and generation") : from_json(one, s);
			if (why)
				return why;
			list->brief[list->number++] = brief;
		}
	}
	for (size_t i = 0; i < list->number; i++)
		if (list->brief[i])
			memcpy(list->stack[i].host, list->host, sizeof(list->host));
	return NULL;
}

const char *stack_list_decode(const uint8_t field[static LARDER_STACK_SIZE], struct stack_list *list, bool *there)
{
	const char *why;
	struct json_object *o = decode(field, OF_CACHE, there, &why);

	list->number = 0;
	memset(list->host, 0, sizeof(list->host));
	memset(list->label, 0, sizeof(list->label));
	*list->options = 0;
	if (!o)
		return why;
	why = list_from_json(o, list);
	json_object_put(o);
	if (why) {
		list->number = 0;
		memset(list->label, 0, sizeof(list->label));
		*list->options = 0;
	}
	return why;
}

struct stack stack_listed(const struct stack *stack)
{
	struct stack listed = *stack;

	if (stack->state != STACK_REMOVING)
		return listed;
	*listed.class = *listed.options = *listed.keyfile = *listed.token = *listed.fs = *listed.label = *listed.mkfs = *listed.mount = *listed.space = *listed.disks = 0;
	listed.wiped = listed.size = listed.snapshots = 0;
	return listed;
}

bool stack_list_put(struct stack_list *list, const struct stack *stack)
{
	size_t i = 0;

	while (i < list->number && memcmp(list->stack[i].uuid, stack->uuid, 16))
		i++;
	if (i == STACK_LIST_MAX)
		return false;
	list->stack[i] = *stack;
	memcpy(list->host, stack->host, sizeof(list->host));
	list->brief[i] = false;
	if (i == list->number)
		list->number++;
	return true;
}

void stack_list_drop(struct stack_list *list, const uint8_t uuid[16])
{
	size_t kept = 0;

	for (size_t i = 0; i < list->number; i++)
		if (memcmp(list->stack[i].uuid, uuid, 16)) {
			list->stack[kept] = list->stack[i];
			list->brief[kept++] = list->brief[i];
		}
	list->number = kept;
}
