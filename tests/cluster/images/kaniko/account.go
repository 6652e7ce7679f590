package main

import (
	"fmt"
	"os/user"
	"strconv"
	"strings"
	"syscall"
)

// account is whom a RUN runs as; without a credential it is the executor's own user, root.
type account struct {
	home       string
	credential *syscall.Credential
}

// lookUp reads USER's forms: name, number, name:group, number:group. Names are those of the unpacked image.
func lookUp(text string) (account, error) {
	userName, groupName, hasGroup := strings.Cut(text, ":")
	if userName == "" || userName == "root" || userName == "0" {
		return account{home: "/root"}, nil
	}
	found, err := user.Lookup(userName)
	if err != nil {
		if found, err = user.LookupId(userName); err != nil {
			if _, err := strconv.ParseUint(userName, 10, 32); err != nil {
				return account{}, fmt.Errorf("user %s is not in the image", userName)
			}
			found = &user.User{Uid: userName, Gid: "0", HomeDir: "/"} // a number needs no entry
		}
	}
	uid, err := strconv.ParseUint(found.Uid, 10, 32)
	if err != nil {
		return account{}, err
	}
	group := found.Gid
	if hasGroup {
		group = groupName
	}
	gid, err := groupNumber(group)
	if err != nil {
		return account{}, err
	}
	credential := &syscall.Credential{Uid: uint32(uid), Gid: gid}
	if others, err := found.GroupIds(); err == nil {
		for _, other := range others {
			if number, err := strconv.ParseUint(other, 10, 32); err == nil {
				credential.Groups = append(credential.Groups, uint32(number))
			}
		}
	}
	return account{home: found.HomeDir, credential: credential}, nil
}

func groupNumber(text string) (uint32, error) {
	if number, err := strconv.ParseUint(text, 10, 32); err == nil {
		return uint32(number), nil
	}
	group, err := user.LookupGroup(text)
	if err != nil {
		return 0, fmt.Errorf("group %s is not in the image", text)
	}
	number, err := strconv.ParseUint(group.Gid, 10, 32)
	return uint32(number), err
}

// ownership reads a --chown: whom copied files belong to, root without one.
func ownership(text string) (uid, gid int, err error) {
	if text == "" {
		return 0, 0, nil
	}
	owner, err := lookUp(text)
	if err != nil || owner.credential == nil {
		return 0, 0, err
	}
	return int(owner.credential.Uid), int(owner.credential.Gid), nil
}
