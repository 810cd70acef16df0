package main

import (
	"context"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
)

// node shows one object of a disk to the kernel.
type node struct {
	fs.Inode
	disk *disk
	obj  *object
}

var _ interface {
	fs.NodeLookuper
	fs.NodeOpendirHandler
	fs.NodeGetattrer
	fs.NodeSetattrer
	fs.NodeCreater
	fs.NodeMkdirer
	fs.NodeOpener
	fs.NodeReader
	fs.NodeWriter
	fs.NodeFsyncer
	fs.NodeUnlinker
	fs.NodeRmdirer
	fs.NodeRenamer
	fs.NodeLinker
	fs.NodeStatfser
	fs.NodeAllocater
} = (*node)(nil)

// handle is an open file; the object holds all state.
type handle struct{}

// mount shows the disk at a directory. Nothing is cached by the kernel, so
// every write and sync arrives here in its order.
func mount(d *disk, at string) (*fuse.Server, error) {
	return fs.Mount(at, &node{disk: d, obj: d.root}, &fs.Options{
		MountOptions: fuse.MountOptions{FsName: "cutfs", Name: "cutfs", DirectMount: true, MaxWrite: 512 << 10},
	})
}

func (n *node) child(ctx context.Context, o *object, out *fuse.EntryOut) *fs.Inode {
	fill(o, &out.Attr)
	kind := uint32(syscall.S_IFREG)
	if o.dir {
		kind = syscall.S_IFDIR
	}
	return n.NewInode(ctx, &node{disk: n.disk, obj: o}, fs.StableAttr{Mode: kind, Ino: o.ino})
}

func fill(o *object, a *fuse.Attr) {
	a.Ino, a.Size, a.Nlink = o.ino, uint64(len(o.data)), 1
	a.Blocks, a.Blksize = uint64(len(o.data)+511)/512, blockSize
	a.Mode = syscall.S_IFREG | o.mode
	if o.dir {
		a.Mode = syscall.S_IFDIR | o.mode
	}
}

func (n *node) lock() func() {
	n.disk.mu.Lock()
	return n.disk.mu.Unlock
}

func (n *node) Lookup(ctx context.Context, name string, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	defer n.lock()()
	o := n.obj.entries[name]
	if o == nil {
		return nil, syscall.ENOENT
	}
	return n.child(ctx, o, out), 0
}

// listing is an open directory.
type listing struct {
	node *node
	rest []fuse.DirEntry
}

// OpendirHandle opens a directory for listing and for sync.
func (n *node) OpendirHandle(context.Context, uint32) (fs.FileHandle, uint32, syscall.Errno) {
	defer n.lock()()
	l := &listing{node: n}
	for name, o := range n.obj.entries {
		kind := uint32(syscall.S_IFREG)
		if o.dir {
			kind = syscall.S_IFDIR
		}
		l.rest = append(l.rest, fuse.DirEntry{Name: name, Ino: o.ino, Mode: kind, Off: uint64(len(l.rest) + 1)})
	}
	return l, 0, 0
}

// Readdirent returns the next entry, nil at the end.
func (l *listing) Readdirent(context.Context) (*fuse.DirEntry, syscall.Errno) {
	if len(l.rest) == 0 {
		return nil, 0
	}
	entry := l.rest[0]
	l.rest = l.rest[1:]
	return &entry, 0
}

// Fsyncdir makes the names in the directory durable.
func (l *listing) Fsyncdir(context.Context, uint32) syscall.Errno {
	defer l.node.lock()()
	l.node.obj.sync()
	return 0
}

func (n *node) Getattr(_ context.Context, _ fs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	defer n.lock()()
	fill(n.obj, &out.Attr)
	return 0
}

func (n *node) Setattr(_ context.Context, _ fs.FileHandle, in *fuse.SetAttrIn, out *fuse.AttrOut) syscall.Errno {
	defer n.lock()()
	if size, ok := in.GetSize(); ok {
		n.obj.resize(int(size))
	}
	if mode, ok := in.GetMode(); ok {
		n.obj.mode = mode & 0o777
	}
	fill(n.obj, &out.Attr)
	return 0
}

func (n *node) Create(ctx context.Context, name string, _, mode uint32, out *fuse.EntryOut) (*fs.Inode, fs.FileHandle, uint32, syscall.Errno) {
	defer n.lock()()
	o := n.disk.object(false, mode&0o777)
	n.obj.alter(change{name: o})
	return n.child(ctx, o, out), &handle{}, fuse.FOPEN_DIRECT_IO, 0
}

func (n *node) Mkdir(ctx context.Context, name string, mode uint32, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	defer n.lock()()
	if n.obj.entries[name] != nil {
		return nil, syscall.EEXIST
	}
	o := n.disk.object(true, mode&0o777)
	n.obj.alter(change{name: o})
	return n.child(ctx, o, out), 0
}

func (n *node) Open(_ context.Context, flags uint32) (fs.FileHandle, uint32, syscall.Errno) {
	defer n.lock()()
	if flags&syscall.O_TRUNC != 0 {
		n.obj.resize(0)
	}
	return &handle{}, fuse.FOPEN_DIRECT_IO, 0
}

func (n *node) Read(_ context.Context, _ fs.FileHandle, dest []byte, off int64) (fuse.ReadResult, syscall.Errno) {
	defer n.lock()()
	if off >= int64(len(n.obj.data)) {
		return fuse.ReadResultData(nil), 0
	}
	return fuse.ReadResultData(dest[:copy(dest, n.obj.data[off:])]), 0
}

func (n *node) Write(_ context.Context, _ fs.FileHandle, data []byte, off int64) (uint32, syscall.Errno) {
	defer n.lock()()
	n.obj.write(data, off)
	return uint32(len(data)), 0
}

func (n *node) Allocate(_ context.Context, _ fs.FileHandle, off, size uint64, mode uint32) syscall.Errno {
	const keepSize = 1
	if mode&^keepSize != 0 {
		return syscall.EOPNOTSUPP
	}
	defer n.lock()()
	if end := int(off + size); mode&keepSize == 0 && end > len(n.obj.data) {
		n.obj.resize(end)
	}
	return 0
}

func (n *node) Fsync(context.Context, fs.FileHandle, uint32) syscall.Errno {
	defer n.lock()()
	n.obj.sync()
	return 0
}

func (n *node) Unlink(_ context.Context, name string) syscall.Errno {
	defer n.lock()()
	if n.obj.entries[name] == nil {
		return syscall.ENOENT
	}
	n.obj.alter(change{name: nil})
	return 0
}

func (n *node) Rmdir(_ context.Context, name string) syscall.Errno {
	defer n.lock()()
	o := n.obj.entries[name]
	switch {
	case o == nil:
		return syscall.ENOENT
	case len(o.entries) > 0:
		return syscall.ENOTEMPTY
	}
	n.obj.alter(change{name: nil})
	return 0
}

func (n *node) Rename(_ context.Context, name string, parent fs.InodeEmbedder, newName string, flags uint32) syscall.Errno {
	if flags != 0 {
		return syscall.EINVAL
	}
	to, ok := parent.EmbeddedInode().Operations().(*node)
	if !ok {
		return syscall.EXDEV
	}
	defer n.lock()()
	o := n.obj.entries[name]
	if o == nil {
		return syscall.ENOENT
	}
	if to.obj == n.obj {
		n.obj.alter(change{name: nil, newName: o})
		return 0
	}
	to.obj.alter(change{newName: o})
	n.obj.alter(change{name: nil})
	return 0
}

func (n *node) Link(ctx context.Context, target fs.InodeEmbedder, name string, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	t, ok := target.EmbeddedInode().Operations().(*node)
	if !ok {
		return nil, syscall.EXDEV
	}
	defer n.lock()()
	if n.obj.entries[name] != nil {
		return nil, syscall.EEXIST
	}
	n.obj.alter(change{name: t.obj})
	return n.child(ctx, t.obj, out), 0
}

func (n *node) Statfs(_ context.Context, out *fuse.StatfsOut) syscall.Errno {
	const blocks = 1 << 24 // 64 GiB
	out.Blocks, out.Bfree, out.Bavail = blocks, blocks/2, blocks/2
	out.Bsize, out.Frsize, out.NameLen = blockSize, blockSize, 255
	return 0
}
